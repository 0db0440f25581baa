"""Gradients: reverse-mode differentiation of a part of a graph, whose result is nodes of the same graph.

`differentiate.gradients` goes backwards through the nodes between variables and a result. What each operator hands
back is a rule of its own (`rules`), or that of simpler operators that it is spelled out in (`spelled`); elementwise
operators need neither, for their scalar expressions are differentiated (`scalars`).
"""
