"""A worker's decisions: the outcomes of jobs, delays, how many records to request, and its counts. Pure."""
