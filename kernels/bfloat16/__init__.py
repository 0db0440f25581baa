"""Products and convolutions whose operands are rounded to bfloat16 and summed in float32, in AMX's tile registers or by
products of small matrices."""
