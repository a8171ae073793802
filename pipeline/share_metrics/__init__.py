"""Metrics, history and a report from the persisted streams of a cluster (docs/spec/pipeline.md).

`reader` needs no Spark and reads streams into Arrow; everything above it is built on that.
"""
