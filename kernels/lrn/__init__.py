"""Local response normalisation over neighbouring channels."""
