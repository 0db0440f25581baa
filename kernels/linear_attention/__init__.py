"""Linear attention: a state of keys by values that each step updates and each query reads."""
