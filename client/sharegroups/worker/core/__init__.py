"""What a worker decides: outcomes of jobs, delays, how many records to ask for, what it counts. Pure."""
