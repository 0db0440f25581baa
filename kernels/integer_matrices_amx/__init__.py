"""Products of matrices of 8-bit integers that are both computed, in AMX's tile registers."""
