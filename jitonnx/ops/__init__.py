"""The operators: a folder a domain, a module a family. docs/operators.md says how to add one.

`registry` knows them all. Beside it stands what families share: `base`, `elementary` functions, `windows` and their
`unfolding`; and `fused`, the operators that only rewrites make.
"""
