"""The commands for share groups, each in its own file, and what they share."""
