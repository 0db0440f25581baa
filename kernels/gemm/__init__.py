"""Matrix products: what a product is (`spec`, without Numba), its kernel (`kernel`), and BLAS as an alternative (`blas`)."""
