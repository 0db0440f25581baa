"""What the attention kernels are, without compiling them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning
from jitonnx.target.choosing import cheapest
from jitonnx.target.products import BFLOAT16, Bfloat16Products

if TYPE_CHECKING:
    from jitonnx.target.machine import Target

MASKS = ("", "float", "bool")
STORED_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}
"""What keys and values may lie as, with the bits of an element."""
BLOCK_TILES = 4
"""Tiles of query rows whose scores are held at a time: what is read of k and v serves as many."""
PADDING = 16
"""Elements that rows of scores are longer than need be: rows a multiple of 4 KB apart would share cache sets. Also the
rows that copying may write behind the last one."""
BLOCK_KEYS = 512
"""Keys whose scores are held at a time where a query row is done by itself."""
BLOCK_ROWS = 32
"""Query rows whose scores are held at a time where products are of bfloat16."""
_OTHER_WAY = 1.2
"""What reading k and v in place costs, or copying them, where the other one is usual: no more than a guess, as the
number of rows decides."""
STEP = 32
"""Elements of bfloat16 in a row of a tile."""


class AttentionBuffers(Arguments):
    """The pointers of a mask and of spans are not used where there are none."""

    q: Buffer
    k: Buffer
    v: Buffer
    mask: Buffer
    y: Buffer = result()
    spans: Buffer = result()


class AttentionSizes(Arguments):
    """Extents, strides in elements, and numbers."""

    batch: Size
    heads: Size
    kv_heads: Size
    queries: Size
    keys: Size
    depth: Size
    value_depth: Size
    q_batch: Size
    q_head: Size
    q_row: Size
    k_batch: Size
    k_head: Size
    k_row: Size
    k_column: Size
    v_batch: Size
    v_head: Size
    v_row: Size
    v_column: Size
    y_batch: Size
    y_head: Size
    y_row: Size
    mask_batch: Size
    mask_head: Size
    mask_row: Size
    scale_bits: Size
    causal_offset: Size
    fill_bits: Size
    span_keys: Size = computed()
    span_count: Size = computed()
    """Spans of the keys that a query row is multiplied with, and the keys of one."""


@dataclass(frozen=True)
class AttentionSpec(KernelSpec):
    """y = softmax(scale * q @ transpose(k) + mask) @ v for every batch and head, float32.

    Element (batch, head, row, i) of q lies at batch * q_batch + head * q_head + row * q_row + i; so for y, and for k
    and v with columns any k_column and v_column apart. So heads may lie anywhere: [batch, sequence, heads, size] as
    well as [batch, heads, sequence, size], a transposed k, or slices of one projection. kv_heads < heads shares k and v
    among heads / kv_heads neighbouring heads. `scale_bits` is the bit pattern of the scale as float64.

    The mask's element is at batch * mask_batch + head * mask_head + row * mask_row + key; a stride 0 shares it. "float"
    is added to the scores. "bool", a byte an element: where it is 0 the score is replaced by the float64 of `fill_bits`
    (-inf in ONNX's Attention; exporters of Where also write the lowest float32).
    `causal`: query row r sees the keys up to r + causal_offset.

    A row that sees nothing, or only -inf, is NaN, or 0 with `empty_rows_zero`.

    The epilogue's batch is batch * heads + head, its row the query row, its column that of v.
    Task: a block of query rows of a head; of one row, where `alone`, a span of the keys of a group of `shared` heads.
    What several spans give goes to spans [batch][heads][span_count][value_depth + 2], of which `JoinSpec` makes y: sums
    of weights times v, the largest score, as the kernel has it, and the sum of weights, for which that is subtracted.
    """

    rows: tuple[int, ...]
    """Tile heights, decreasing; the highest that does not exceed a task's rows is used for all of them."""
    widths: tuple[int, ...]
    """Tile widths in elements, decreasing; what remains on the right takes the narrowest that suffices."""
    mask: str = ""
    causal: bool = False
    empty_rows_zero: bool = False
    in_place: bool = False
    """k_column and v_column are 1, and k and v are read where they lie by tiles of the last height."""
    rounded: Bfloat16Products | Literal[""] = ""
    """Operands of both products are rounded to bfloat16, sums are float32: in AMX's tile registers ("tiles"), or by dot
    products of pairs ("dots"); "": they are float32. If they are rounded, k_column and v_column are 1, rows[0] is the
    least number of rows that is done so, and fewer are done in place."""
    stored: str = "float32"
    """What k and v lie as: float32, float16, bfloat16, int8 or int4. The latter are two a byte, each plus 8: byte i of
    a row has elements i and depth / 2 + i in its low and its high bits; strides are in bytes."""

    shared: int = 1
    """Heads with the same k and v of which a single query row is multiplied together: not where it is causal."""
    most_spans: int = 1
    """Spans at most that the keys of a single query row are cut into: not where it is causal."""

    BUFFERS = AttentionBuffers
    SIZES = AttentionSizes
    PRESCHEDULED = True

    def __post_init__(self) -> None:
        if self.mask not in MASKS:
            raise ValueError(f"no attention kernel with a mask of kind {self.mask!r}")
        if self.stored not in STORED_BITS:
            raise ValueError(f"no attention kernel for keys and values of {self.stored}")
        if self.alone and (self.causal or not self.in_place):
            raise ValueError("Bug: a row is done by itself where rows of k and v lie, and all keys are seen")

    @property
    def features(self) -> tuple[str, ...]:
        return BFLOAT16[self.rounded].features if self.rounded else ()

    @property
    def alone(self) -> bool:
        """Whether a single query row is done in a way of its own."""
        return self.shared > 1 or self.most_spans > 1

    @property
    def natural(self) -> bool:
        """Whether scores are to the base e: a mask is added to them. Else they are to the base 2."""
        return bool(self.mask)

    def complete(self, sizes: AttentionSizes) -> AttentionSizes:
        keys, count = spans_of(self.shared, self.most_spans, sizes.batch * sizes.heads, sizes.queries, sizes.keys)
        return AttentionSizes.following(sizes, span_keys=keys, span_count=count)

    def row_blocks(self, sizes: AttentionSizes) -> int:
        """Blocks that the query rows of a head are cut into, in whole tiles: only if there are few heads, and not so
        small that making k and v ready, which every block does anew, would count."""
        wanted = -(-tuning.TASKS // larger(1, sizes.batch * sizes.heads))
        return larger(1, smaller(wanted, sizes.queries // self.rows[0] // self.task_tiles))

    @property
    def task_tiles(self) -> int:
        """Tiles of query rows that a task has at least when they are cut."""
        return 2 * tuning.ATTENTION_TASK_TILES if self.rounded else tuning.ATTENTION_TASK_TILES

    def tasks(self, sizes: AttentionSizes) -> int:
        if 0 in (sizes.batch, sizes.heads, sizes.queries, sizes.value_depth):
            return 0
        if sizes.queries < self.rows[-1]:
            raise ValueError(f"Bug: attention with tiles of {self.rows} rows can't do {sizes.queries}")
        each_head = sizes.batch * sizes.heads * self.row_blocks(sizes)
        if not self.alone:
            return each_head
        spans = sizes.batch * (sizes.heads // self.shared) * sizes.span_count
        return each_head - below(sizes.queries, 2) * (each_head - spans)

    def packed_columns(self, columns: int) -> int:
        """Columns of all panels that `columns` columns are copied to."""
        rest = columns % self.widths[0]
        if not rest:
            return columns
        return columns - rest + min(width for width in self.widths if width >= rest)

    def scratch_bytes(self, sizes: AttentionSizes) -> int:
        """Panels of k and of v, a block's scores, a tile of results, a factor for each row."""
        each_head = self._bytes_of_heads(sizes)
        return larger(each_head, 4 * self.shared_elements(sizes)) if self.alone else each_head

    def shared_elements(self, sizes: AttentionSizes) -> int:
        """Of each of the heads that are multiplied together some keys' scores, results, and two numbers."""
        results = self.parts * self.packed_columns(sizes.value_depth // self.parts)
        return self.shared * (BLOCK_KEYS + PADDING + results + 2)

    def _bytes_of_heads(self, sizes: AttentionSizes) -> int:
        keys, depth, value_depth = sizes.keys, sizes.depth, sizes.value_depth
        if self.rounded:
            k, v, q, scores, weights = self.rounded_bytes(keys, depth, value_depth)
            return k + v + q + scores + weights + BLOCK_ROWS * BLOCK_ROWS * 4 + BLOCK_ROWS * 4
        block = BLOCK_TILES * self.rows[0]
        panels = 0 if self.never_copies else self._panel_elements(keys, depth, value_depth)
        return 4 * (panels + block * (self.packed_columns(keys) + PADDING) + self.rows[0] * self.widths[0] + block)

    def rounded_bytes(self, keys: Any, depth: Any, value_depth: Any) -> tuple[Any, ...]:
        """Bytes of k, v, and of a block's rows of q, scores and weights, in scratch memory, where these are rounded."""
        deep, long, wide = (-(-size // STEP) * STEP for size in (depth, keys, value_depth))
        q, scores, weights = deep * 2 + LINE, (long + PADDING) * 4, long * 2 + LINE
        return long * deep * 2, long * wide * 2, q * BLOCK_ROWS, scores * BLOCK_ROWS, weights * BLOCK_ROWS

    @property
    def never_copies(self) -> bool:
        """No tile needs panels of k and v."""
        return self.in_place and len(self.rows) == 1

    @property
    def parts(self) -> int:
        """How many parts of their columns k and v are read in, each from the first byte of a row on."""
        return 2 if self.stored == "int4" else 1

    def _panel_elements(self, keys: int, depth: int, value_depth: int) -> int:
        columns = self.parts * self.packed_columns(value_depth // self.parts)
        panels = (depth + PADDING) * self.packed_columns(keys) + (keys + PADDING) * columns
        return panels + 2 * PADDING * self.widths[0]

    def work(self, sizes: AttentionSizes) -> Work:
        pairs, columns = sizes.batch * sizes.heads * sizes.queries * sizes.keys, sizes.depth + sizes.value_depth
        if self.causal:
            pairs //= 2
        read = 4 * sizes.heads * sizes.queries + STORED_BITS[self.stored] * sizes.kv_heads * sizes.keys // 8
        return Work(pairs * (2 * columns + 20), sizes.batch * read * columns)


class JoinBuffers(Arguments):
    spans: Buffer
    y: Buffer = result()


class JoinSizes(Arguments):
    """Those of `AttentionSizes`."""

    batch: Size
    heads: Size
    queries: Size
    keys: Size
    value_depth: Size
    y_batch: Size
    y_head: Size
    span_count: Size = computed()


@dataclass(frozen=True)
class JoinSpec(KernelSpec):
    """What attention gives of several spans of keys, together: there is nothing to do for one.

    Of the largest scores of a head's spans the largest is subtracted from all, and the powers are factors of the spans'
    sums. Fields are those of the `AttentionSpec`. Task: a head.
    """

    shared: int
    most_spans: int
    natural: bool
    empty_rows_zero: bool

    BUFFERS = JoinBuffers
    SIZES = JoinSizes
    PRESCHEDULED = True

    def complete(self, sizes: JoinSizes) -> JoinSizes:
        _, count = spans_of(self.shared, self.most_spans, sizes.batch * sizes.heads, sizes.queries, sizes.keys)
        return JoinSizes.following(sizes, span_count=count)

    def tasks(self, sizes: JoinSizes) -> int:
        return sizes.batch * sizes.heads * (1 - below(sizes.span_count, 2)) * smaller(sizes.value_depth, 1)

    def work(self, sizes: JoinSizes) -> Work:
        elements = sizes.batch * sizes.heads * sizes.span_count * (sizes.value_depth + 2)
        return Work(2 * elements, 4 * elements)


def spans_of(shared: int, most: int, heads: Any, queries: Any, keys: Any) -> tuple[Any, Any]:
    """Keys of a span of a query row, and how many of them there are: so many, if there is one query, that there are
    tasks for threads, and none of few keys. heads: of the whole batch."""
    wanted = larger(1, smaller(most, -(-tuning.TASKS // larger(1, heads // shared))))
    wanted = 1 + below(queries, 2) * (wanted - 1)
    least = -(-keys // tuning.ATTENTION_SPAN_KEYS)
    each = larger(1, -(-least // wanted)) * tuning.ATTENTION_SPAN_KEYS
    return each, larger(1, -(-keys // each))


def _extent(size: int | None) -> str:
    return "any" if size is None else str(size)


def shared_heads(heads: int, kv_heads: int) -> int:
    """How many heads share k and v, of which a query row is multiplied together; 0 heads are unknown."""
    return heads // kv_heads if 0 < kv_heads < heads and not heads % kv_heads else 1


def most_spans(heads: int, shared: int, keys: int | None) -> int:
    """Spans at most that keys are cut into, None: of an unknown number, for a query row of so many heads, 0: unknown,
    `shared` of which are done together."""
    if not heads or (keys is not None and keys <= tuning.ATTENTION_SPAN_KEYS):
        return 1
    return max(1, -(-tuning.TASKS // (heads // shared)))


def choose(  # noqa: PLR0913  (what decides, by name)
    queries: int | None,
    keys: int | None,
    value_depth: int | None,
    target: Target,
    *,
    mask: str = "",
    causal: bool = False,
    empty_rows_zero: bool = False,
    rows_lie: bool = False,
    rounded: bool = False,
    stored: str = "float32",
    shared: int = 1,
    most_spans: int = 1,
) -> AttentionSpec:
    """The kernel for these extents; None: known only at run time. `rows_lie`: rows of k and v have unit
    stride. `rounded`: operands may be rounded to bfloat16 where that is faster. `stored`: what k and v lie as.
    `shared`: what `shared_heads` gives, `most_spans`: what the function of that name does.

    With 32 registers a tile is 6 x 4 vectors (24 sums, 4 of k or v, one spread element of q), with 16 it is 6 x 2.
    Narrower tiles, and a height of 1, are compiled in only if the extents may need them.
    """
    lanes = target.lanes(4)
    vectors = 4 if target.vector_registers >= 32 else 2
    widths = tuple(lanes * count for count in (4, 2, 1) if count <= vectors)
    used = [widths[0]]
    packed = stored == "int4"
    part = value_depth // 2 if packed and value_depth is not None else value_depth
    for extent in (keys, part):
        if extent is None:
            used = list(widths)
        elif rest := extent % widths[0]:
            used.append(min(width for width in widths if width >= rest))
    if keys is not None and part is not None and max(keys, part) <= min(used):
        used = [min(used)]
    rows: tuple[int, ...] = (6, 1) if queries is None else (min(6, max(1, queries)),)
    products = target.bfloat16_products if rounded and rows_lie and not packed else ""
    if products in ("tiles", "dots") and (queries is None or queries >= tuning.ATTENTION_ROUNDED_ROWS):
        rows = (tuning.ATTENTION_ROUNDED_ROWS, 1) if queries is None else (tuning.ATTENTION_ROUNDED_ROWS,)
        widths = tuple(sorted(set(used), reverse=True))
        in_place = queries is None
        alone = (shared, most_spans) if in_place and not causal else (1, 1)
        return AttentionSpec(rows, widths, mask, causal, empty_rows_zero, in_place, products, stored, *alone)
    in_place = rows_lie and (queries is None or queries <= tuning.ATTENTION_FEW_ROWS)
    if rows_lie and queries is not None:
        in_place = cheapest(
            "attention",
            lambda: f"{queries} queries, {_extent(keys)} keys, {_extent(value_depth)} columns of {stored}",
            {in_place: 1.0, not in_place: _OTHER_WAY},
            lambda in_place: "keys and values in place" if in_place else "keys and values copied to panels",
        )
    widths = tuple(sorted(set(used), reverse=True))
    alone = (shared, most_spans) if in_place and not causal and (queries is None or queries == 1) else (1, 1)
    return AttentionSpec(rows, widths, mask, causal, empty_rows_zero, in_place, "", stored, *alone)
