"""This package stands in the place of onnxruntime where the folder around it comes first in Python's path; see
`jitonnx.alias`."""

import importlib.util
import os
import sys

if importlib.util.find_spec("jitonnx") is None:  # a clone that is not installed
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from jitonnx.alias import install_as_onnxruntime

install_as_onnxruntime()
