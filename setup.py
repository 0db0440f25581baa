"""Which packages there are, and where; everything else is in pyproject.toml.

`kernels/` and `proto/` stand at the top of the repository and are installed as `jitonnx.kernels` and `jitonnx.proto`.
pyproject.toml can map folders, but then wants every package listed by hand; here they are found. The mapping needs
nothing more: a wheel gets the folders copied, and an editable install gets setuptools' import finder, which maps them
in the same way.
"""

from setuptools import find_packages, setup

MAPPED = {"jitonnx.kernels": "kernels", "jitonnx.proto": "proto"}

packages = find_packages(include=["jitonnx", "jitonnx.*"])
for package, folder in MAPPED.items():
    packages += [package, *(f"{package}.{name}" for name in find_packages(folder))]

setup(packages=packages, package_dir=MAPPED)
