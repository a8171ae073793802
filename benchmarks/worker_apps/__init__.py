"""The same job for several frameworks; `benchmarks.workers` starts each with the framework's own command."""
