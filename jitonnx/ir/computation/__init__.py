"""Computations, the vocabulary that the planner knows, and operators lowered to it: what is computed, not how."""
