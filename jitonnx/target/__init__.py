"""The CPU that code is made for: what it has, what its cores do in a cycle, and what was measured of them."""
