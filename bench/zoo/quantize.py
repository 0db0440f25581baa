"""Command line: quantise the zoo's models as their users do, with onnxruntime's quantizer.

    python -m bench.zoo.quantize ZOO_DIR OUT_DIR [NAME ...] [--forms qdq,qoperator,dynamic]

ZOO_DIR holds what `python -m bench.zoo.materialize` wrote. For each form of a model OUT_DIR gets `NAME.FORM.onnx` and
the inputs beside it, so that `python -m bench.models OUT_DIR` runs them. Activations are uint8, weights int8 with a
scale for each channel; the ranges of activations are those of the model's own inputs. Models that are there are kept.

qdq        QuantizeLinear and DequantizeLinear around float operators, static
qoperator  QLinearConv, QLinearMatMul and their like, static
dynamic    ranges found at run time: MatMulInteger, DynamicQuantizeLSTM; of transformers and recurrent models
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench import zoo

FORMS = ("qdq", "qoperator", "dynamic")
DYNAMIC = ("bert_base", "gpt2_small", "gru_ctc", "lstm_tagger", "minilm_l6", "vit_b_16")
"""Models that are quantised with ranges found at run time, too."""

REFUSED = {"bert_base": ("qoperator",), "unet_gn": ("qdq",)}
"""Forms that are left out: onnxruntime refuses to load what its quantizer makes of the model."""


def quantize(model: Path, out: Path, form: str, feeds: Mapping[str, np.ndarray]) -> None:
    """Write the model at `model` to `out` in one of FORMS, with ranges of activations as `feeds` give them."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        """The reader of the one feed."""

        def __init__(self) -> None:
            self._left = [dict(feeds)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
        kinds = {"weight_type": quantization.QuantType.QInt8, "per_channel": True}
        if form == "dynamic":
            quantization.quantize_dynamic(str(prepared), str(out), **kinds)
            return
        written = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}[form]
        kinds["activation_type"] = quantization.QuantType.QUInt8
        quantization.quantize_static(str(prepared), str(out), Reader(), quant_format=written, **kinds)


def main() -> None:
    """Read the command line, write the models and print their paths."""
    parser = argparse.ArgumentParser(prog="python -m bench.zoo.quantize", description="Quantise the benchmark models.")
    parser.add_argument("zoo", type=Path, metavar="ZOO_DIR", help="folder of the materialized models")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="folder to write to; made if missing")
    parser.add_argument("names", metavar="NAME", nargs="*", help="models, default all")
    parser.add_argument("--forms", default=",".join(FORMS), help=f"which forms, of {', '.join(FORMS)}; default all")
    options = parser.parse_intermixed_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or zoo.names():
        for form in options.forms.split(","):
            out = options.out / f"{name}.{form}.onnx"
            if form in REFUSED.get(name, ()) or (form == "dynamic" and name not in DYNAMIC):
                continue
            if not out.exists():
                with np.load(options.zoo / f"{name}.npz") as feeds:
                    quantize(options.zoo / f"{name}.onnx", out, form, feeds)
                shutil.copyfile(options.zoo / f"{name}.npz", out.with_suffix(".npz"))
            print(out, flush=True)


if __name__ == "__main__":
    main()
