"""Matrix products: what a product is (`spec`, without Numba), its kernel (`kernel`), BLAS beside it (`blas`)."""
