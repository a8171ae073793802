"""The memory of a node's process: freed memory given back, reference cycles found."""
