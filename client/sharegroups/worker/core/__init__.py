"""A worker's decisions: the outcomes of jobs, delays, and how many records to request; and its counts. Pure."""
