"""The clients for asyncio; the blocking ones of `sharegroups` wrap these."""

from sharegroups.aio.admin import Admin
from sharegroups.aio.consumer import ShareConsumer
from sharegroups.aio.producer import Producer

__all__ = ["Admin", "Producer", "ShareConsumer"]
