"""How far the operands of kernels reach in memory, and whether that is certain to be within their buffers.

A plan believes things about sizes. Whatever it believes, no kernel may read or write outside of its operands: what is
not certain for all sizes is looked at whenever a program is made (`plan.outline.Bound`).
"""

from __future__ import annotations

from jitonnx.ir.dims import Atom, Dim, DimLike, known, product
from jitonnx.plan.tensor import StridedTensor

_TERMS, _NESTED = 4, 2
"""Larger expressions, which multiply to very large ones, are looked at when sizes are known."""


def is_certain(tensor: StridedTensor) -> bool:
    """Whether a tensor begins and ends in its buffer for all sizes, as far as its form tells."""
    numbers = *tensor.shape, *tensor.strides, tensor.offset, tensor.buffer.elements
    if tensor.offset == 0 and product(tensor.shape) == tensor.buffer.elements and tensor.contiguous:
        return True
    if not all(map(_is_simple, numbers)) or not all(map(_surely, tensor.strides)):
        return False
    last = tensor.offset + sum((dim - 1) * stride for dim, stride in zip(tensor.shape, tensor.strides, strict=True))
    begins = tensor.offset == 0 or all(isinstance(dim, int) and dim > 0 for dim in tensor.shape)
    begins = begins or _surely(tensor.buffer.elements - tensor.offset)
    return begins and _surely(tensor.offset) and _surely(tensor.buffer.elements - 1 - last)


def is_outside(tensor: StridedTensor) -> bool:
    """Whether a tensor, all of whose sizes are known, has elements outside of its buffer."""
    offset, elements = tensor.offset, tensor.buffer.elements
    shape, strides = ([dim for dim in dims if isinstance(dim, int)] for dims in (tensor.shape, tensor.strides))
    if (
        not (known((*tensor.shape, *tensor.strides)) and isinstance(offset, int) and isinstance(elements, int))
        or 0 in shape
    ):
        return False
    spans = [(dim - 1) * stride for dim, stride in zip(shape, strides, strict=True)]
    return offset + sum(min(span, 0) for span in spans) < 0 or offset + sum(max(span, 0) for span in spans) >= elements


def _is_simple(dim: DimLike) -> bool:
    return not isinstance(dim, Dim) or (
        len(dim.terms) <= _TERMS and all(atom.nested <= _NESTED for monomial, _ in dim.terms for atom in monomial)
    )


def _surely(dim: DimLike) -> bool:
    """Whether an expression is at least 0 by its form, as a sum of variables is. Proofs would take too long."""
    if not isinstance(dim, Dim):
        return dim >= 0
    return all(c >= 0 and all(map(_atom_surely, monomial)) for monomial, c in dim.terms)


def _atom_surely(atom: Atom) -> bool:
    return atom.function != "//" or all(map(_surely, atom.arguments))  # type: ignore[arg-type]
