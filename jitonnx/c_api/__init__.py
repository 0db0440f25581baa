"""Libraries of custom operators, written for onnxruntime's C interface: `SessionOptions.register_custom_ops_library`.

A library is given a table of functions (`functions.py` names them, `table.py` makes it), by which it registers
operators (`library.py`), reads attributes and the tensors of a run, and makes results. What it knows as pointers to
onnxruntime's objects are numbers that stand for ours (`handles.py`), so a wrong one is an error and no crash. Each
operator becomes a declaration like a user's own (`operators.py`), which the host evaluates.

Its modules are imported when a library is registered, and by nothing else.
"""
