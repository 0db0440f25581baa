"""`SparseTensor`: values and where they are, under onnxruntime's names.

It holds the arrays that it is given and computes nothing. No operator of ONNX reads sparse tensors, of onnxruntime's
SparseToDenseMatMul alone. Models hand them on; what is sparse in a file (initializers, the value of a Constant) is
filled up as it is loaded, but for outputs that are declared as sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from jitonnx.api.devices import OrtDevice, cpu_alone
from jitonnx.api.enumerations import Enumeration
from jitonnx.errors import InvalidArgument
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.sparse import Coordinates


class OrtSparseFormat(Enumeration):
    """How the indices of a sparse tensor are kept."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


_NAMES = {
    OrtSparseFormat.ORT_SPARSE_COO: "COO",
    OrtSparseFormat.ORT_SPARSE_CSRC: "CSR(C)",
    OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE: "BlockSparse",
}


class SparseTensor:
    """A sparse tensor of numbers or strings. Arrays of numbers are shared; what is given back cannot be written to."""

    def __init__(self, sparse_tensor: SparseTensor) -> None:
        if not isinstance(sparse_tensor, SparseTensor):
            raise ValueError(f"a SparseTensor is made of another, or by its class methods; got {sparse_tensor!r}")
        self.__dict__.update(sparse_tensor.__dict__)

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """A tensor of dense_shape by coordinates.

        values: [n]. coo_indices: int64, [n] linear ones, or [n, 2] or [2 n] coordinates. ort_device: the CPU.
        InvalidArgument for other numbers of indices.
        """
        indices = _indices(coo_indices, np.int64)
        count = np.size(values)
        if indices.size not in (count, 2 * count):
            raise InvalidArgument(
                f"Index size: {indices.size} must be equal to or twice the values size: {count} of a sparse tensor"
            )
        if indices.size == 2 * count and count:
            indices = indices.reshape(count, 2)
        return cls._made(OrtSparseFormat.ORT_SPARSE_COO, dense_shape, values, (indices,), ort_device)

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int],
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """A matrix of dense_shape by rows.

        values: [n]. inner_indices: int64 [n], the column of each. outer_indices: int64 [rows + 1], where each row
        begins, with the end behind the last. ort_device: the CPU. InvalidArgument for other numbers of indices.
        """
        inner, outer = _indices(inner_indices, np.int64), _indices(outer_indices, np.int64)
        if len(dense_shape) != 2 or inner.size != np.size(values) or outer.size not in (0, int(dense_shape[0]) + 1):
            raise InvalidArgument(
                f"a sparse matrix of {list(dense_shape)} with {np.size(values)} values has as many inner indices and "
                f"one outer index more than rows; {inner.size} and {outer.size} were given"
            )
        return cls._made(OrtSparseFormat.ORT_SPARSE_CSRC, dense_shape, values, (inner, outer), ort_device)

    @classmethod
    def blocksparse_from_numpy(
        cls, dense_shape: Sequence[int], values: np.ndarray, indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """A tensor of dense_shape by blocks.

        values: the blocks. indices: int32, their coordinates. ort_device: the CPU.
        """
        places = _indices(indices, np.int32)
        return cls._made(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE, dense_shape, values, (places,), ort_device)

    @classmethod
    def _made(
        cls,
        format: OrtSparseFormat,
        dense_shape: Sequence[int],
        values: Any,
        indices: tuple[np.ndarray, ...],
        device: OrtDevice,
    ) -> SparseTensor:
        cpu_alone(device)
        if isinstance(values, np.ndarray) and values.dtype.kind in "OUT":
            values = values.astype(object)
            if other := [one for one in values.flat if not isinstance(one, str)]:
                raise TypeError(f"the values of a sparse tensor are numbers, or all strings; one is {other[0]!r}")
        elif not isinstance(values, np.ndarray) or values.dtype.kind in "SMmV":
            what = f"NumPy's {values.dtype}" if isinstance(values, np.ndarray) else type(values).__name__
            raise TypeError(f"the values of a sparse tensor are an array of numbers or strings, not {what}")
        made = cls.__new__(cls)
        made._format, made._indices = format, tuple(map(_read_only, indices))
        made._shape = [int(size) for size in dense_shape]
        made._values = _read_only(np.ascontiguousarray(values))
        return made

    _format: OrtSparseFormat
    _shape: list[int]
    _values: np.ndarray
    _indices: tuple[np.ndarray, ...]

    def values(self) -> np.ndarray:
        """The values, which cannot be written to."""
        return self._values

    def as_coo_view(self) -> SparseCooView:
        """`.indices()` are the coordinates. RuntimeError for another format."""
        return SparseCooView(self._of(OrtSparseFormat.ORT_SPARSE_COO))

    def as_csrc_view(self) -> SparseCsrView:
        """`.inner()` are columns, `.outer()` where rows begin. RuntimeError for another format."""
        return SparseCsrView(self._of(OrtSparseFormat.ORT_SPARSE_CSRC))

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """`.indices()` are the coordinates of blocks. RuntimeError for another format."""
        return SparseBlockSparseView(self._of(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE))

    get_coo_data, get_csrc_data, get_blocksparse_data = as_coo_view, as_csrc_view, as_blocksparse_view

    def _of(self, format: OrtSparseFormat) -> tuple[np.ndarray, ...]:
        if self._format is not format:
            raise RuntimeError(
                f"This sparse tensor does not contain {_NAMES[format]} format; it is in {_NAMES[self._format]} format"
            )
        return self._indices

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of a matrix's values. ValueError for blocks and other ranks. (Not in onnxruntime.)"""
        if len(self._shape) != 2 or self._format is OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE:
            raise ValueError(f"{self._shape} in {_NAMES[self._format]} format; a matrix in COO or CSR(C) is needed")
        rows, columns = self._shape
        if self._format is OrtSparseFormat.ORT_SPARSE_CSRC:
            inner, outer = self._indices
            places = (np.repeat(np.arange(max(outer.size - 1, 0)), np.diff(outer)), inner)
        elif self._indices[0].ndim == 2:
            places = (self._indices[0][:, 0], self._indices[0][:, 1])
        else:
            places = (self._indices[0] // max(columns, 1), self._indices[0] % max(columns, 1))
        for axis, (found, size) in enumerate(zip(places, (rows, columns), strict=True)):
            if found.size and not 0 <= found.min() <= found.max() < size:
                raise ValueError(f"an index of axis {axis} is not in a matrix of shape {self._shape}")
        if places[0].size != self._values.size:
            raise ValueError(f"{places[0].size} indices for {self._values.size} values")
        return places

    def to_cuda(self, ort_device: OrtDevice) -> NoReturn:
        """RuntimeError: jitonnx has the CPU alone."""
        raise RuntimeError("Cuda is not available in this build")

    def format(self) -> OrtSparseFormat:
        """How the indices are kept."""
        return self._format

    def dense_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._shape)

    @property
    def dtype(self) -> DType:
        """The type of the values. (Not in onnxruntime.)"""
        return of_numpy(self._values.dtype)

    def data_type(self) -> str:
        """Name the type in onnxruntime's words: "sparse_tensor(float)"."""
        return f"sparse_tensor({self.dtype.text})"

    def device_name(self) -> str:
        """ "cpu"."""
        return "cpu"

    def _get_c_tensor(self) -> SparseTensor:
        return self


class SparseCooView:
    """The coordinates of a sparse tensor in COO format."""

    def __init__(self, indices: tuple[np.ndarray, ...]) -> None:
        self._indices = indices

    def indices(self) -> np.ndarray:
        """Linear indices, or a row of coordinates for each value."""
        return self._indices[0]


class SparseBlockSparseView(SparseCooView):
    """The coordinates of the blocks of a sparse tensor."""


class SparseCsrView:
    """The indices of a sparse tensor in CSR format."""

    def __init__(self, indices: tuple[np.ndarray, ...]) -> None:
        self._indices = indices

    def inner(self) -> np.ndarray:
        """The column of each value."""
        return self._indices[0]

    def outer(self) -> np.ndarray:
        """The places among the values at which rows begin, and behind them the end of the last one: [rows + 1]."""
        return self._indices[1]


def handed_out(output: Any) -> Any:
    """What a user gets for an output: what the model's file stores of a sparse tensor, as one."""
    if not isinstance(output, Coordinates):
        return output
    return SparseTensor.sparse_coo_from_numpy(output.shape, output.values, output.indices, OrtDevice.make("cpu", 0))


def _indices(given: Any, dtype: type) -> np.ndarray:
    return np.ascontiguousarray(given, dtype)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
