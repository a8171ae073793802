"""The reader as a Spark data source, and a session for it (PM-1b)."""

from share_metrics.spark.batches import with_short_errors
from share_metrics.spark.session import build_session, java_pid, own_source, tasks_wanted
from share_metrics.spark.source import RedisStreams

__all__ = ["RedisStreams", "build_session", "java_pid", "own_source", "tasks_wanted", "with_short_errors"]
