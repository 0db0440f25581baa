"""Random numbers: the words of Philox 4x32-10, and what is made of them."""
