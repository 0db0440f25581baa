"""What a region says about its tasks. Its code is not in the library: codegen writes it for each region."""
