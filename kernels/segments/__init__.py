"""Rows reduced by segments: bags of embeddings."""
