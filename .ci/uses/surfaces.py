# requires: surfaces, surfaces-surrogates==0.0.1, scikit-learn, pandas
from surfaces.test_functions.machine_learning import KNeighborsClassifierFunction

function = KNeighborsClassifierFunction(use_surrogate=True)
result = [function({"n_neighbors": n, "algorithm": "auto"}) for n in (1, 5, 30)]
