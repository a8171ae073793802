"""Pure cores of the partition leader: share-partitions, share sessions, validation. They decide; the host waits."""
