"""The reader as a data source of Spark, and a session to use it in (PM-1b)."""

from .batches import told_briefly
from .session import build_session, own_source
from .source import RedisStreams

__all__ = ["RedisStreams", "build_session", "own_source", "told_briefly"]
