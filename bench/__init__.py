"""Benchmarks: the models of `bench.zoo` and single operators, beside other runtimes and the machine's limits."""
