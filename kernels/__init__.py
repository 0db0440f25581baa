"""The hand-written kernel library. This module and those without LLVM (packing) import nothing heavy."""
