"""The commands about share groups, one file per family."""
