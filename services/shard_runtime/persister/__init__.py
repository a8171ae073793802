"""The persister: client of the share coordinator, for leaders and group coordinators (PL-720…PL-732, GC-74)."""
