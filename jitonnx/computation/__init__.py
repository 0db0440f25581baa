"""From operators to computations, the vocabulary that the planner knows: what is computed, without saying how."""
