"""Sets gRPC options while gRPC is imported: services and tools set both, the client library sets only FORKLESS.

- POLLING. By default gRPC 1.85 reads and writes sockets on threads of its EventEngine: a message crosses three threads
  before the event loop gets it. When the thread that waits for completions polls the sockets itself, as in earlier
  releases, the message crosses one. Client channels do so (benchmarks/history/one-by-one.md). Listeners do not
  (CM-180): the polling thread goes on reading one connection while more data comes, so one client's flood of pings
  made all others wait.
- FORKLESS. By default gRPC stops its threads at every fork and starts them again, for children that go on using gRPC.
  grpc.aio cannot be used in such a child, and gRPC's blocking API only where GRPC_ENABLE_FORK_SUPPORT is set. Without
  that variable the fork handlers are useless but still a risk: they can hang children, such as those of a
  multiprocessing.Pool in a worker's handler.

gRPC reads these options once, from the environment, while it is imported. So the variables are set only for that
moment, and child processes do not inherit them. Nothing is set if grpc is already imported, or for grpcio releases that
were not tested with these options: gRPC prints a warning about options that it does not know. A variable that is
already set is not changed. The client library does not change the polling, since its program may use gRPC for other
purposes.
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
TESTED_RELEASE: Final = "1.85."


@contextmanager
def choosing(choices: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for imports inside the `with` block, except those that are already set."""
    ours = {}
    if "grpc" not in sys.modules and metadata.version("grpcio").startswith(TESTED_RELEASE):
        ours = {name: value for name, value in choices.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
