"""Products of matrices that are both computed, rounded to bfloat16 and summed in float32, in AMX's tile registers."""
