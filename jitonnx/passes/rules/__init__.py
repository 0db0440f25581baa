"""The rewrites themselves, a family a module; how they are matched and applied is in the folder above."""
