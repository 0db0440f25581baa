"""The kernels of decision trees."""

from __future__ import annotations

from jitonnx.emit.builder import Kernel
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


def build(spec: TreesSpec | LeafMasksSpec | MixedTreesSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes."""
    return lambda code, begin, end: _KERNELS[type(spec)](code, spec, lanes).run(begin, end)
