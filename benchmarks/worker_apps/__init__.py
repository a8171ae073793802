"""The same job for three frameworks; `benchmarks.workers` starts each as its own command does."""
