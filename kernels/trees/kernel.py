"""The kernels of decision trees."""

from __future__ import annotations

from jitonnx.emit.builder import Kernel
from jitonnx.emit.epilogue import Stage
from jitonnx.kernels.trees.base import TreesKernel
from jitonnx.kernels.trees.leaf_masks import LeafMasksKernel
from jitonnx.kernels.trees.mixed import MixedKernel
from jitonnx.kernels.trees.records import RecordsKernel
from jitonnx.kernels.trees.spec import LeafMasksSpec, MixedTreesSpec, TreesSpec

_KERNELS: dict[type, type[TreesKernel]] = {
    TreesSpec: RecordsKernel,
    LeafMasksSpec: LeafMasksKernel,
    MixedTreesSpec: MixedKernel,
}


def build(spec: TreesSpec | LeafMasksSpec | MixedTreesSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes. There is no epilogue."""
    if epilogue is not None:
        raise ValueError(f"{spec} takes no epilogue")
    return lambda code, begin, end: _KERNELS[type(spec)](code, spec, lanes).run(begin, end)
