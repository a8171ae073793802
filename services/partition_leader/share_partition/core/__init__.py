"""The core of a share-partition: it decides what happens, and the host carries it out. Pure."""
