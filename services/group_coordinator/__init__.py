"""The group coordinator: share groups, their members and assignments, and the life of their share-partition state."""
