"""The reader as a data source of Spark, and a session to use it in (PM-1b)."""

from .session import build_session
from .source import RedisStreams

__all__ = ["RedisStreams", "build_session"]
