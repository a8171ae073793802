"""The share coordinator: keeps share-partition state, snapshots and updates of it (share-coordinator.md)."""
