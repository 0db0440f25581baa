"""Products and convolutions of 8-bit integers in AMX's tile registers."""
