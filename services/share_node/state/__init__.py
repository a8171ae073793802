"""`sharegroups state`: prints, checks and repairs the entries of the store's streams."""
