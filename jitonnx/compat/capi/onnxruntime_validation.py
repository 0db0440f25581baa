"""onnxruntime's checks of its installation, of which there is nothing to check here."""

from jitonnx.compat.capi.build_and_package_info import __version__, cuda_version, package_name


def check_distro_info() -> None:
    """Accepted, without effect: any system that Numba runs on will do."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """The package's name, the version of the interface, and "", as there is no CUDA."""
    return package_name, __version__, cuda_version


def check_training_module() -> tuple[bool, str, str, str]:
    """False, as models are not trained, with the package's name and versions."""
    return False, *get_package_name_and_version_info()
