"""What the persisted streams of a cluster tell: metrics, history and a report (docs/spec/pipeline.md).

`reader` needs no Spark and reads streams into Arrow; everything above it is built on that.
"""
