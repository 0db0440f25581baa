"""The operators, a module a family; `jitonnx.ops.registry` knows them all. docs/operators.md says how to add one."""
