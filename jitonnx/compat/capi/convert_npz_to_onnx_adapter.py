"""A LoRA adapter's file out of an .npz file of its parameters: `export_lora_parameters`, or as a command.

    python -m jitonnx.capi.convert_npz_to_onnx_adapter --npz_file_path a.npz --output_file_path a.onnx_adapter \\
        --adapter_version 1 --model_version 1
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np

from jitonnx.api.adapters import AdapterFormat
from jitonnx.api.values import OrtValue


def get_args() -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--npz_file_path", type=str, required=True)
    parser.add_argument("--output_file_path", type=str, required=True)
    parser.add_argument("--adapter_version", type=int, required=True)
    parser.add_argument("--model_version", type=int, required=True)
    return parser.parse_args()


def export_lora_parameters(
    npz_file_path: str | os.PathLike[str],
    adapter_version: int,
    model_version: int,
    output_file_path: str | os.PathLike[str],
) -> None:
    """Write every array of an .npz file, under its name, to an adapter's file."""
    adapter = AdapterFormat()
    adapter.set_adapter_version(adapter_version)
    adapter.set_model_version(model_version)
    with np.load(npz_file_path) as arrays:
        adapter.set_parameters({name: OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()})
    adapter.export_adapter(os.fspath(output_file_path))


def main() -> int:
    """The command's exit status."""
    arguments = get_args()
    export_lora_parameters(
        arguments.npz_file_path, arguments.adapter_version, arguments.model_version, arguments.output_file_path
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
