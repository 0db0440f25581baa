"""Stands in the place of onnxruntime_genai where the folder around it comes first in Python's path; see
`jitonnx.compat.alias`."""

import importlib
import importlib.util
import os
import sys

if importlib.util.find_spec("jitonnx") is None:  # a clone that is not installed
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from jitonnx.compat.alias import install_as_onnxruntime

install_as_onnxruntime()
importlib.import_module(__name__)
