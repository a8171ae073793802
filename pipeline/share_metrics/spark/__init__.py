"""The reader as a Spark data source, and a session for it (PM-1b)."""

from .batches import told_briefly
from .session import build_session, own_source, tasks_wanted
from .source import RedisStreams

__all__ = ["RedisStreams", "build_session", "own_source", "tasks_wanted", "told_briefly"]
