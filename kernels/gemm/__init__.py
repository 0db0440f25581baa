"""Matrix products: what a product is (`spec`, without LLVM), its kernel (`kernel`), BLAS beside it (`blas`)."""
