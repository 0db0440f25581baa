"""`python -m jitonnx`, for where the script `jitonnx` is not on the path."""

import sys

from jitonnx.tools.cli import main

sys.exit(main())
