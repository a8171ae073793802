"""Makes small random changes to the product's source, and counts how many of them the fast tests and the simulator
find."""
