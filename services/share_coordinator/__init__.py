"""The share coordinator: stores share-partition state as snapshots and updates (share-coordinator.md)."""
