"""The errors of graphs and operators, apart from them: who only catches them need not import them."""


class GraphError(ValueError):
    """A model that cannot be what its author meant; the text names the node, its operator and the values."""


class InferenceError(ValueError):
    """Inputs that an operator does not allow; whoever infers a graph adds the node's name and its inputs' types."""


class FunctionError(TypeError):
    """A user's function that cannot be compiled; the text names it, and says why and what would fit."""
