"""Decisions of the client without I/O: acknowledgements, share sessions, membership, back-off, batches, buffers."""
