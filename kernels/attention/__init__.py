"""Attention: softmax(scale * q @ transpose(k) + mask) @ v as one kernel."""
