"""Ensembles of decision trees."""
