"""Compilers beside which `bench.models --peers` times whole models: torch.compile, IREE and TVM, where installed.

torch.compile takes the model as onnx2torch gives it, with its constants frozen (Inductor, which needs a C++ compiler).
IREE compiles for this CPU at its highest level, TVM with its default pipeline, both without searching for schedules:
that takes hours a model. Each raises what it cannot do, as a runtime of `bench.models`; `python -m pip install torch
onnx2torch torchvision iree-base-compiler iree-base-runtime apache-tvm` gets them. Compiling takes 10 seconds to minutes
a model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]


def open_torch(path: Path, threads: int, feeds: Feeds) -> Run:
    """A call that runs the model once, compiled by torch's Inductor."""
    import onnx
    import torch
    from onnx2torch import convert
    from torch._inductor import config

    torch.set_num_threads(threads)
    model = onnx.load(str(path))
    compiled: Callable[..., Any] = torch.compile  # which torch does not declare
    module = compiled(convert(model).eval())
    given = [torch.from_numpy(feeds[value.name]) for value in model.graph.input if value.name in feeds]

    def run() -> list[np.ndarray]:
        with torch.no_grad(), config.patch(freezing=True):
            return [np.asarray(result) for result in _several(module(*given))]

    return run


def open_iree(path: Path, threads: int, feeds: Feeds) -> Run:
    """The same by IREE, for the feeds' sizes."""
    import onnx
    from iree import runtime
    from iree.compiler.tools import compile_file
    from iree.compiler.tools.import_onnx import __main__ as importer

    model = onnx.load(str(path))
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True):
            dim.dim_value = size
    with tempfile.TemporaryDirectory() as folder:
        fixed, imported = f"{folder}/model.onnx", f"{folder}/model.mlir"
        onnx.save(model, fixed)
        importer.main(importer.parse_arguments([fixed, "-o", imported]))
        flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
        code = compile_file(imported, input_type="onnx", target_backends=["llvm-cpu"], extra_args=flags)
    runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    context = runtime.SystemContext(config=runtime.Config("local-sync" if threads == 1 else "local-task"))
    module = runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(module)
    (name,) = [each for each in module.function_names if not each.startswith("__") and not each.endswith("$async")]
    function = context.modules[module.name][name]
    given = [feeds[value.name] for value in model.graph.input]
    return lambda: [result.to_host() for result in _several(function(*given))]


def open_tvm(path: Path, threads: int, feeds: Feeds) -> Run:
    """The same by TVM's Relax, for the feeds' sizes."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(str(path))
    sizes = {name: list(array.shape) for name, array in feeds.items()}
    module = relax.get_pipeline("zero")(from_onnx(model, shape_dict=sizes))
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    code = tvm.compile(module, target=tvm.target.Target.from_device(tvm.cpu()))
    machine = relax.VirtualMachine(code, tvm.cpu())
    given = [tvm.runtime.tensor(feeds[value.name]) for value in model.graph.input if value.name in feeds]
    return lambda: [result.numpy() for result in _several(machine["main"](*given))]


PEERS = {"torch.compile": open_torch, "IREE": open_iree, "TVM": open_tvm}
"""What opens a model with each, by name."""


def _several(results: Any) -> list[Any]:
    """The results, if there are several, or the single one."""
    return [results] if hasattr(results, "shape") else list(results)
