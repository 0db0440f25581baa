"""Figures that choices go by: what a task has to be worth, what stays in which cache, from which size on a way pays.

Each says what it means and, in brackets at the end, where it comes from: the CPU that it was measured on and the
command whose cases decide it, `python -m` left out; or "estimated", of what nobody measured by itself. To tune for a
CPU, run that command with the figure changed, in turns. Figures that are older than this file (November 2026) were
measured while they were chosen, but their CPU and command are told by when that was and what they are about: measure
again before relying on which one it was. `tests/test_tuning.py` holds that each says so, that the command is there, and
that somebody goes by the figure.

What a kind of core does in a cycle is in `jitonnx.target.cores`. What is no figure of CPUs stays where it is used: how
many rows a kernel takes at a time, since its code is written so. So do the four costs that are formulas, whose terms
are explained beside them: `jitonnx.kernels.gemm.choose.tile_cost`, `jitonnx.kernels.convolution.choose` (Winograd,
depthwise planes), `jitonnx.kernels.parts.amx_products.chosen` and the bounds of `jitonnx.plan.precision`.
"""

from __future__ import annotations

from jitonnx.support.records import NamedTuple

# Tasks: what a thread takes at a time. Taking one costs 20 to 100 ns, so 2 to 10 us of work.

GRAIN_NANOSECONDS = 10_000
"""The estimated time on one core of what a thread takes of a call at a time, at least. Taking costs 20 to 100 ns.
[Zen 4; bench.models]"""
SERIAL_NANOSECONDS = 6_000
"""A call estimated to take less is done by the calling thread alone. Measured on models of many short calls (ShuffleNet
v2, MobileNet v3 small, two threads): 2000 to 8000 differ by less than 1 %, 12000 costs 1 to 3 %, 20000 costs 3 to 10 %.
[Zen 4; bench.models --threads 2]"""
TASKS = 16
"""Tasks that products and attention are cut into where there is work for so many: 2 to 16 threads share them evenly.
[estimated]"""
TASK_ELEMENTS = 1 << 14
"""Elements of rows that make a task worth handing out: about 5 microseconds of work. [Zen 4; bench.operators
reduction/ softmax/ normalization/]"""
REGION_TASK_ELEMENTS = 8192
"""Elements of a task of a region: some microseconds of work, and a few dozen KB that stay in the first cache levels.
[Zen 4; bench.regions]"""
REGION_STRIDED_COLUMNS = 64
"""Columns of a task in which elements of some operand lie apart: the rows behind touch the same cache lines while these
are near. In rows of 8192 each element of 21 channels side by side took a line from the third-level cache, six times as
long; and lines a power of two apart share few places of the first level. [Granite Rapids; bench.regions]"""
INTERPOLATED_TASK_ELEMENTS = 1 << 13
"""About how many elements a task makes of which each is several products: RoiAlign, GridSample, Col2Im.
[Granite Rapids; bench.operators sampling/]"""
TASK_BYTES = 32 << 10
"""About what a task of a kernel that moves elements writes (Gather, Scatter, Pad, Transpose, repeated pixels): it and
what it is made of fit the second-level cache, and a task costs little beside it. [Zen 4; bench.operators indexing/
movement/]"""
LOOKUP_TASK_BYTES = 1 << 16
"""Bytes that a task looks up in a table: some microseconds of work. [Granite Rapids; bench.operators integers/]"""
DETERMINANT_TASK_FLOPS = 1 << 14
"""Operations of a task of determinants. [estimated]"""
RANDOM_TASK_WORDS = 1 << 13
"""Words that a task draws. [Granite Rapids; bench.operators random/]"""
RANDOM_WORD_FLOPS = 24
"""What drawing a word costs, in floating-point operations: ten rounds of Philox, for four words. [estimated]"""
RANDOM_SEARCH_FLOPS = 200
"""What finding a class by its cumulated probability costs. [estimated]"""
GEMM_TASK_PRODUCTS = 1 << 18
"""Products of a task of float32: some 5 microseconds of work. [Zen 4; bench.operators product/]"""
INTEGER_TASK_PRODUCTS = {
    **{"tiles": 1 << 21, "signed matrices": 1 << 20, "dot": 1 << 20},
    **{"signed dot": 1 << 19, "byte pairs": 1 << 18, "pairs": 1 << 18, "words": 1 << 17},
}
"""Products of bytes that are some 5 microseconds of work, by how they are summed (`Target.integer_products`). AArch64's
are estimated. [Granite Rapids; bench.operators integers/]"""
INTEGER_MATRICES_TASK_PRODUCTS = 1 << 20
"""Products of two computed matrices of bytes that are some 10 microseconds of work, with the packing of b and the
epilogue. [Granite Rapids; bench.operators integers/]"""
INTEGER_DEPTHWISE_TASK_PRODUCTS = 1 << 18
"""Products of bytes, one channel each, that are some 5 microseconds of work. [Granite Rapids; bench.operators
integers/]"""
RECURRENT_PART_MICROSECONDS = 2.0
"""The least that a thread does in a step of a recurrent layer. A meeting takes 0.2 to 0.3 microseconds.
[Zen 4; bench.operators recurrent/ --threads 2]"""
RECURRENT_BYTES_A_MICROSECOND = 100e3
"""The rate at which a core reads recurrent weights from its second-level cache, roughly. [Zen 4; bench.operators
recurrent/]"""
ATTENTION_TASK_TILES = 16
"""Tiles of query rows that a task has at least when rows are cut: each reads all of k and v. [Zen 4; bench.operators
attention/]"""
ATTENTION_SPAN_KEYS = 256
"""Keys that a task of one query row has at least: 128 KB of k and v of 64 columns, 3 to 5 microseconds of reading.
[estimated]"""
REDUCTION_ENOUGH_UNITS = 8
"""Rows or blocks of columns that are enough tasks: of fewer, long rows are cut into parts. [Zen 4; bench.operators
reduction/ --threads 2]"""
REDUCTION_LONG = 1 << 17
"""Elements of a row from which on it is cut into parts: 5 to 10 microseconds of work. [Zen 4; bench.operators
reduction/ --threads 2]"""
SCATTER_BLOCK = 512
"""Elements of a row that a task of ScatterElements takes, so that few long rows can be shared out.
[Zen 4; bench.operators indexing/]"""
SCATTER_LEAST_RUN = 256
"""Bytes of a run that ScatterND does not split: each task reads all indices anew. [Zen 4; bench.operators indexing/]"""
TRANSPOSE_TASKS = 8
"""Tasks that are enough to cut a transposition into longer blocks. [Zen 4; bench.operators movement/]"""
TRANSPOSE_BLOCKS = (128, 64, 32)
"""Extents of a task's block along both axes of a transposition, multiples of every tile: the first that gives
`TRANSPOSE_TASKS`. Long ones are kinder to the hardware's prefetching: 2048 x 2048 floats took 1.4 ms in blocks of 128
where 64 took 1.7 and 32 took 2.5. [Zen 4; bench.operators movement/]"""
PACKING_THREAD_BYTES = 1 << 20
"""Bytes of weights that make a further thread worth while for packing them; starting one takes 50 to 100 microseconds.
[Zen 4; bench.cold]"""

# Caches: what is to stay in which, and what is done where it does not.

GEMM_NEAR_BYTES = 3 << 20
"""A run-time b of up to so many bytes is read in place. Measured with 128 to 256 rows: 0.93 to 0.95 of the FMA limit at
768 x 768 (2.4 MB; copied 0.86), but 0.84 at 1000 x 1000 (copied 0.94) and 0.5 at 4096 x 4096 (copied 0.8).
[Zen 4; bench.operators product/]"""
GEMM_NEAR_ROWS, GEMM_NEAR_DEPTH = 64, 1024
"""A larger one is read in place where so many rows at most use a panel of at most so many rows of b. A copy waits for
the third-level cache, tiles multiply meanwhile. Measured: 1.1 to 1.2 of the speed with 24 to 64 rows and k of 96 to
1000, even where rows of b lie a power of two apart; 0.98 to 1.05 with 128 rows, and 0.45 with k = 4096.
[Zen 4; bench.operators product/]"""
GEMM_WAITING_NEAR_BYTES, GEMM_WAITING_FEW_ROWS = 32 << 10, 16
"""The same on cores that wait for their third-level cache: a run-time b of up to so many bytes, and one for so many
rows, is read in place. To copy others takes 0.85 to 0.93 of the time with AVX-512, 0.72 to 0.93 with AVX2; half of it
at 64 x 2048 x 512, where all rows of a panel have the same places in the caches. [Granite Rapids; bench.operators
product/]"""
GEMM_PART_OF_K, GEMM_LONG_PART_OF_K, GEMM_ROWS_OF_LONG_PARTS = 512, 1024, 96
"""Most steps of k that are taken at once, by less rows or from so many rows on, where rows and panels outgrow half of
the second-level cache of a core that waits for its third-level one. Products of 768 columns with k = 3072 take 0.93 to
0.95 of the time with 197 rows, 128 or 64, 0.8 with 24 (0.88 in long parts); where the number of rows is not known, 0.83
to 0.9 with 8 to 197; 49 x 512 x 2048 takes 0.97, 128 x 384 x 1536 0.97 to 1. Where k is 768, parts of it gain nothing,
and nor do they with AVX2. [Granite Rapids; bench.operators product/]"""
GEMM_PANELS_OF_PARTS, GEMM_TASKS_OF_PARTS = 4, 8
"""Panels of a task that takes k in parts, as long as there are so many tasks. [Granite Rapids; bench.operators
product/]"""
GEMM_A_BYTES, GEMM_A_BYTES_COPYING = 1 << 20, 4 << 20
"""What the rows of a task take at most, and where it copies panels of b, which more rows then use.
[Zen 4; bench.operators product/]"""
GEMM_NEAR_B_BYTES, GEMM_NEAREST_B_BYTES = 256 << 10, 16 << 10
"""A packed b of so many bytes stays in the second-level cache, or beside other operands in the first-level one.
[Granite Rapids; bench.operators product/]"""
GEMM_ROWS_OF_NEAR_B, GEMM_ROWS_OF_NEAREST_B = 96, 24
"""Rows of a task that makes whole rows with such a b. [Granite Rapids; bench.operators product/]"""
DIRECT_STAGED_BYTES = 16 << 10
"""Results of a direct convolution that are collected before they go to planes: half of a first-level cache at most.
[Zen 4; bench.operators convolution/]"""
DIRECT_LISTED = 640
"""Inputs of a pixel that a direct convolution lists at a time, of whole blocks of channels: 5 KB of the first-level
cache. [Granite Rapids; bench.operators convolution/ --cpu haswell]"""
DIRECT_SHARING_TILES = 8
"""Tiles for which an output block's weights are read once: of more, the first can wait for them.
[Zen 4; bench.operators convolution/]"""
DEPTHWISE_NEAR_BYTES, DEPTHWISE_PART_CHANNELS = 512 << 10, 128
"""Rows of a depthwise convolution that stay in the second-level cache, and the channels of a part where they do not:
7x7 on 32 x 32 x 768 takes 0.76 of the time so. [Zen 4; bench.operators depthwise/]"""
DEPTHWISE_NEAR_ELEMENTS = 1 << 18
"""An image of so many elements stays in the second-level cache: its rows are not asked for. [Zen 4; bench.operators
depthwise/]"""
WINOGRAD_NEAR_WEIGHTS = 16 << 20
"""Bytes of a layer's transformed weights that are found in the third-level cache, beside those of other layers.
[Granite Rapids; bench.operators convolution/]"""
POOLING_BLOCK_BYTES = 12 << 10
"""The most that rows copied for a task take: they stay in the first-level cache beside what is written.
[Zen 4; bench.operators pooling/]"""
NORMALIZATION_BLOCK_BYTES = 1 << 14
"""Half of a first-level cache: what of a group is read twice, for its mean and its variance, before the next is.
[Zen 4; bench.operators normalization/]"""
INTEGER_ROWS_BYTES = 384 << 10
"""Gathered rows of a task of bytes: they are to stay in the second-level cache. [Granite Rapids; bench.operators
integers/]"""
INTEGER_RUN_ELEMENTS = 64
"""Taps of bytes side by side from which on convolutions read them from rows of the image, instead of gathering them:
the end of each run is a branch that is not foreseen. [Zen 5; bench.models resnet18]"""
INTEGER_NEAR_BYTES = 1 << 20
"""Weights of bytes up to this size stay in the second-level cache from block to block of rows.
[Granite Rapids; bench.operators integers/]"""
INTEGER_MATRICES_ROWS_BYTES = 256 << 10
"""Gathered rows of a task of two computed matrices of bytes: they are to stay in the second-level cache.
[Granite Rapids; bench.operators integers/]"""
INTEGER_DEPTHWISE_BAND_BYTES = 256 << 10
"""Input rows of a task of depthwise bytes: they are to stay in the second-level cache. [Granite Rapids; bench.operators
integers/]"""
AMX_BAND_BYTES = 512 << 10
"""Rows of images that a task has in scratch memory: they are to stay in the second-level cache.
[Granite Rapids; bench.operators convolution/ --precision bfloat16]"""
AMX_COPIED_COLUMNS = 512
"""Columns that a task has at least, or half of all, whose rows are copied: another thread copies them, too.
[Granite Rapids; bench.operators product/ --precision bfloat16]"""
AMX_PACKED_BYTES = 1 << 19
"""Right matrices of up to so many bytes, packed, are packed by the tasks that multiply with them, if each is multiplied
with one left matrix. [Granite Rapids; bench.operators product/ --precision bfloat16]"""
AMX_ONE_TASK = 1 << 20
"""Products up to which that is done with a single matrix, too: they are one task. [Granite Rapids; bench.operators
product/ --precision bfloat16]"""
AMX_TASK_PANELS = 8
"""Panels that are packed together: of each row a kilobyte is read, or more, where it lies.
[Granite Rapids; bench.operators product/ --precision bfloat16]"""
RECURRENT_NEAR_BYTES = 512 << 10
"""Weights of a direction that stay in the second-level cache while blocks of rows go through all steps in turn.
[Zen 4; bench.operators recurrent/]"""
RECURRENT_MOST_ROWS = 32
"""Rows of a block where weights are larger than that, but for rounding up to tiles. [Zen 4; bench.operators
recurrent/]"""
RECURRENT_SHARE_OF_L2 = 0.75
"""What the recurrent weights of a direction may take of the second-level cache, to be read from it step by step and to
be asked for ahead. [Granite Rapids; bench.operators recurrent/]"""
TREES_PIECE_BYTES, TREES_PIECE_BLOCKS = 32 << 10, 8
"""About how much of x a piece of rows has, which passes all trees before the next, and its blocks of rows at most: it
shares a cache with a tree. [Granite Rapids; bench.trees]"""
TRANSPOSE_ALIASING_BYTES = 1024
"""Rows of the source whose distance is a multiple of this share few sets of the first-level cache: a line that two
tiles touch is gone before the second comes. There, tiles begin where cache lines do. [Zen 4; bench.operators
movement/]"""
TRANSPOSE_ALIGNED_EXTENT = 128
"""The extent from which on a tile more along the axis matters little. [Zen 4; bench.operators movement/]"""
TRANSPOSE_CROWDED_BYTES = 2048
"""Rows so far apart share two sets of the first-level cache. [Zen 4; bench.operators movement/]"""
REGION_STREAMED_BYTES = 1024
"""The least that a row has where it is stored past the caches: both its ends are stored as usual.
[Zen 4; bench.regions]"""
TILING_SHARE_OF_L2 = 2
"""What lies between layers that go in turns by bands of an image takes the second-level cache's size over this; 1
gained less, 4 as much. [Granite Rapids; bench.models]"""
TILING_ONCE = 6
"""So many rows are made once, at least, for one that is made twice. [Granite Rapids; bench.models]"""
TILING_LONGEST = 3
"""Kernels that go in turns, at most. [Granite Rapids; bench.models]"""
TILING_ROWS_SHARE_OF_L2 = 4
"""What lies between products that go in turns by bands of rows takes the second-level cache's size over this at most.
[Granite Rapids; bench.models]"""
TILING_ROWS_BANDS = 1.5
"""Whole matrices take as many times that, at least: two bands of 196 x 672 took 1.02 of the time of all rows.
[Granite Rapids; bench.models]"""
TILING_ROWS_WEIGHTS = 4
"""The weights of a chain's products take at most that size over this. [Granite Rapids; bench.models]"""
TILING_BANDS = 16
"""Bands where only a run tells the height and width of an image, or the rows of matrices, at most. [estimated]"""
TILING_LARGER = 4
"""There are enough of them for images of so many times the usual number of pixels. [estimated]"""


class WideProducts(NamedTuple):
    """Products of windows and rows by instructions that sum several of them.

    gflops: what a core does of them, roughly. task_products: of a task, some 5 microseconds of work. rows_bytes: rows
    of a task that are copied, which are to stay in the second-level cache; all_rows_bytes: they may be as many if they
    are all rows, or read where they lie, since large weights then come once. near_bytes: weights of a task up to this
    size stay in the second-level cache from block to block of rows.
    """

    gflops: int
    task_products: int
    rows_bytes: int
    all_rows_bytes: int
    near_bytes: int


TILE_PRODUCTS = WideProducts(1000, 1 << 22, 1 << 20, 3 << 19, 5 << 18)
"""Products in tile registers (AMX), beside a second-level cache of 2 MB. [Granite Rapids; bench.operators product/
convolution/ --precision bfloat16]"""
SMALL_MATRIX_PRODUCTS = WideProducts(100, 1 << 19, 512 << 10, 1 << 20, 5 << 18)
"""Products of 2 x 4 and 4 x 2 bfloat16 (AArch64's bfmmla). [estimated]"""
PAIR_PRODUCTS = WideProducts(400, 1 << 20, 256 << 10, 512 << 10, 512 << 10)
"""Of pairs of bfloat16 in each lane (AVX512-BF16), beside a second-level cache of 1 MB. [Zen 5; bench.operators
product/ convolution/ --precision bfloat16]"""

# Prefetching: how far ahead weights and rows are asked for.

PREFETCH_STEPS = 24
"""Steps ahead of its use that a panel of weights is asked for, into the first-level cache. 8 to 24 were measured to be
alike, and asking for what is near to cost 3 to 6 %. [Granite Rapids; bench.operators product/ convolution/]"""
PREFETCH_FAST_STEPS = 48
"""The same on cores that multiply fast beside a third-level cache that keeps up: over 24 steps mobilenet_v2,
efficientnet_b0 and resnet18 take 0.975 to 0.985 of the time, squeezenet1_1 and densenet121 0.99, four others 1.0 to
1.01; 12 steps take 1.03, and 32 to 96 are alike. [Zen 5; bench.models]"""
GEMM_ONE_ROW_STEPS = 64
"""The same for a single row: 4 KB of a panel of one vector. [Granite Rapids; bench.operators product/]"""
AMX_STEPS = 24
"""Steps ahead of their use that weights in tiles are asked for which are used once. [Granite Rapids; bench.operators
product/ --precision bfloat16]"""
AMX_FETCHED_BYTES = 64 << 10
"""What is asked for of the first panel before rows are copied. [Granite Rapids; bench.operators convolution/
--precision bfloat16]"""
NBITS_AHEAD_BYTES = 4096
"""How far ahead of its use a panel of few bits is asked for. The panel behind it lies behind it. Lines are asked for
one by one, between products: a core asks for few at a time, and all those of a block at once held up the loads behind
them (a matrix in memory took 9 % longer). [Granite Rapids; bench.generation] Scales and zero points are asked for as
many blocks ahead. [Zen 5; bench.generation]"""
GATHER_AHEAD = 96
"""Indices ahead of their use that GatherElements asks for: 3 to 4 % of the time where they come from the third-level
cache. [Granite Rapids; bench.operators indexing/]"""
WEIGHTS_MOST_OF_L2 = 3
"""Weights of later calls are asked for up to so many times the second-level cache, on cores that wait for their
third-level one: in resnet50, to ask for 8 MB took 290 us besides a product of 710, and saved 20; in mobilenet_v3_large
and v2, to ask for 5 MB took 10 and saved 20 to 40. [Granite Rapids; bench.models]"""
WEIGHTS_NEAR_CALLS = 64
"""So far before its turn a call's weights may be asked for. [Zen 4; bench.models]"""

# From which size on a way pays.

GEMM_WIDENED_ROWS = 30
"""Tiles that widen their panel of b anew take longer, for more rows than this, than one pass that widens it for all.
Measured with float16, over the time with b in float32, 384 x 1536 and 768 x 3072: 24 rows 1.28 and 0.98 by tiles, 1.31
and 1.17 by a pass; 48 rows 1.29 and 1.10, 1.12 and 1.08; 128 rows 1.28 and 2.46, 1.06 and 1.05.
[Granite Rapids; bench.operators product/]"""
GEMM_STORED_BYTES, GEMM_STORED_ROWS = 1 << 20, 4
"""Constant matrices of so many bytes, for so many rows, are stored in 16 bits where those hold them. Measured with b of
2048 x 2048: 0.54 of the time for one row or two, 0.66 for four, the same for eight, and 1.12 to 1.2 from sixteen on,
where every tile widens its panel of b anew. [Zen 4; bench.operators product/]"""
GEMM_CODE_PENALTY = 0.005
"""What a tile that has to be compiled costs, as a share of the product's time. [Zen 4; bench.cold]"""
GEMM_SMALL_PRODUCTS = 1 << 19
"""Multiplications of a product below which it costs ten times that. [Zen 4; bench.cold]"""
ATTENTION_FEW_ROWS = 6
"""Query rows up to which k and v are read where they lie, if their rows have unit stride. Measured with 12 heads of
1024 keys: 0.41 of the time with copies for one row, 0.58 for three, 0.76 for six. [Zen 4; bench.operators
attention/]"""
ATTENTION_ROUNDED_ROWS = 8
"""Query rows from which on products of bfloat16 are faster. [Granite Rapids; bench.operators attention/
--precision bfloat16]"""
INTEGER_FEW_ROWS = 2
"""Dot products of vectors are faster than tile registers up to so many rows: 2.1 instead of 3.8 microseconds for one
row by 256 x 1024, 5.3 instead of 6.5 for two rows by 768 x 768. [Granite Rapids; bench.operators recurrent/]"""
NBITS_FEW_ROWS = 8
"""Products of so many rows at most widen the matrix in registers, once for every 4 rows; those of more widen a panel of
it into scratch memory, as float32, which all their rows are multiplied with. [Granite Rapids; bench.generation]"""
NBITS_LEAST_ROWS, NBITS_LEAST_ROUNDED_ROWS = 48, 256
"""Rows that make it worth while to widen a panel once more, for another task; where rows are rounded to a byte.
[Granite Rapids; bench.operators contributed/ --threads 2]"""
SOFTMAX_SHORT = 256
"""Elements of a row up to which softmax does four rows at a time. [Zen 4; bench.operators softmax/]"""
REDUCTION_SHORT = 16
"""Vectors of a row up to which four rows are reduced together. [Zen 4; bench.operators reduction/]"""
REDUCTION_LONG_COLUMNS = 32
"""Columns of fewer elements are not worth totals in memory. [Granite Rapids; bench.operators reduction/]"""
PAD_LONG_RUN = 32
"""Runs of so many elements or more that continue from elsewhere are rows of their own, which are copied by vectors.
[Zen 4; bench.operators movement/]"""
TRANSPOSE_FILLED_EXTENT = 16
"""Shorter axes are not worth a mode in which only the target is contiguous. [Zen 4; bench.operators movement/]"""
TRANSPOSE_REPEATED_EXTENT = 8
"""Longer axes spare nearly all of what it costs to find a place along all axes. [Zen 4; bench.operators movement/]"""
TRANSPOSE_SHORT_RUN = 16
"""Elements of runs that are copied in the order in which the source has them: 16x16 patches of 224 x 224 pixels take
0.6 of the time so. [Zen 5; bench.operators convolution/ movement/]"""
PATCH_COLUMNS = 8
"""Columns of windows side by side from which on they are copied to be rows of a product: of 3 channels, windows of 4
columns take 1.15 of the direct kernel's time so, of 8 columns 0.8 to 1.02, of 16 and 32 0.74 to 1.0. [Zen 5;
bench.operators convolution/]"""
COPY_COST = 0.4
"""What an element costs that is copied to another layout, in multiply-adds of vectors. [Zen 4; bench.operators
convolution/ movement/]"""
POOL_VECTOR_COST = 8
"""What a vector of outputs of pooling costs besides its taps, in taps. [Zen 4; bench.operators pooling/]"""
POOL_PLANE_TAP_COST = 2
"""What a tap of planes costs: loads straddle cache lines, or are shuffles. [Zen 4; bench.operators pooling/]"""
POOL_PADDED_COST = 3
"""What a vector of an image costs that is copied for its padding. [Zen 4; bench.operators pooling/]"""
JOINED_NARROW, JOINED_COSTLY = 8, 10
"""Elements side by side, and operations for each, for which few lanes of a vector cost more than a copy: sines of 4096
times 3 angles take 56 us where they are joined, 9 us densely, and 9 us to copy. [Zen 4; bench.regions]"""
INNER_ELEMENTS = 16
"""An inner loop of fewer elements fills no vector: copying, so that the loop along the axes is innermost, is faster.
[Zen 4; bench.operators reduction/ softmax/]"""
SCALED_PIXELS = 4
"""Pixels of an image for each output channel from which on factors are multiplied into the weights of a 1x1 convolution
instead of its image: 24 us against 10 for 196 pixels, 672 channels and 112 outputs. [Zen 4; bench.operators
convolution/]"""
PLANAR_CHANNELS = 4
"""Input channels up to which an image is read from its planes. [Zen 4; bench.operators convolution/]"""
GROWTH_FOR_PLANES = 4
"""An image that grows so much is better copied to planes first than copied when it is large. [Zen 4; bench.operators
resize/]"""
AMX_MORE_PRODUCTS = 1.5
"""Images are read from rows with their padding where that makes no more than so many times the products.
[Granite Rapids; bench.operators convolution/ --precision bfloat16]"""

# What is fused.

MOST_OPERANDS = 12
"""Operands of one region: beyond, pointers no longer fit the integer registers and fusing stops to pay.
[Zen 4; bench.regions]"""
MOST_OPERANDS_OF_INTEGERS = 18
"""The same of epilogues of integer products: with a residual, most are scales and bounds, which are one number each.
[Granite Rapids; bench.models]"""
MOST_STATEMENTS = 64
"""Elementwise statements of one region or epilogue. Each is written out for several vectors, and compiling takes longer
than in proportion to a region's length. A further region reads and writes a value more, which is in the caches yet.
[Granite Rapids; bench.cold]"""

# How exact sums are.

SUM_STEPS, WINOGRAD_SUM_STEPS = 256, 128
"""Float products that a sum of GEMM or of a convolution adds up in one chain; and Winograd's, whose errors transforms
enlarge. Chains are added up in their turn. Of 1,024 to 9,216 products of inputs behind a ReLU, errors are then up to
2.5e-7 to 3.4e-7 of the largest sum, as onnxruntime's, where a single chain has 7.7e-7 to 2.1e-6; of Winograd's 1.6e-6
instead of 4.4e-6. Between chains a tile's sums go to the first-level cache and back. [Zen 5; bench.models]"""
