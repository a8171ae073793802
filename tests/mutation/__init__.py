"""Makes small random changes to the product's source, and counts which of them the fast tests and the simulator
find."""
