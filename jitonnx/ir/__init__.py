"""The intermediate representation: element types, symbolic dimensions, graphs of operators.

The lowest floor of the house: it imports nothing of ours.
"""
