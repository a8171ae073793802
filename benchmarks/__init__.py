"""The benchmarks of docs/spec/performance.md: one question per file, ratios measured side by side.

`python -m benchmarks` runs them (`make bench`); `--quick` is the smoke run of CI. Every run prints one JSON line on
standard output; the tables with the limits and goals follow on standard error.
"""
