"""The group coordinator: share groups, members, assignments, and which share-partitions have state."""
