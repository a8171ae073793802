"""Choices for gRPC that are made while it is imported: both by services and tools, FORKLESS by the client library too.

- By default gRPC 1.85 reads and writes sockets on threads of its EventEngine: a message crosses three threads before
  the event loop gets it. When the thread that waits for completions polls the sockets itself, as earlier releases did,
  it crosses one. Channels of clients do so (docs/speed.md). Listeners do not (CM-180): the thread that polls reads what
  one connection sends for as long as more comes, so that pings as fast as they can be sent kept all others waiting.
- By default every fork stops gRPC's threads and starts them again, for children that go on using gRPC. grpc.aio cannot
  be used in such a child, and gRPC's blocking API only where GRPC_ENABLE_FORK_SUPPORT is set. So without it the
  handlers are a risk without a use: they hang children, as those of a multiprocessing.Pool in a worker's handler.

gRPC reads these options once, from the environment, while it is imported. So the variables are set only for that
moment, and child processes do not inherit them. A variable that is already set, or a grpc that is already imported, is
left as it is. So are grpcio releases that were not tried with these options: gRPC prints a complaint about variables
that it does not know. The client library leaves the polling as it is: its program may use gRPC for other things.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import Final

POLLING: Final = {"GRPC_EXPERIMENTS": "-event_engine_client"}
FORKLESS: Final = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
TRIED: Final = "1.85."


@contextmanager
def choosing(choices: Mapping[str, str]) -> Iterator[None]:
    """Inside, what is imported finds these choices, unless somebody has chosen before."""
    ours = {}
    if "grpc" not in sys.modules and metadata.version("grpcio").startswith(TRIED):
        ours = {name: value for name, value in choices.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
