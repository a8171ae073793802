"""The persister protocol: partition leaders and group coordinators call the share coordinator with it."""
