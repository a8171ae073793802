"""The core of a share-partition: it decides, the host waits. Pure."""
