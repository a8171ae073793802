"""Imports grpcio for the processes of the services, with the choices that suit them. They import this module first.

- By default gRPC 1.85 reads and writes sockets on threads of its EventEngine: what arrives crosses three threads before
  the event loop hears of it. When the thread that waits for completions looks at the sockets itself, as it did before,
  it crosses one. At one record per fetch that halves a node's context switches (docs/speed.md).
- By default every fork stops gRPC's threads and starts them again, for children that go on using gRPC. grpc.aio cannot
  be used in such a child; ours only start other programs, and there the handlers are a danger without a use.

gRPC reads them once, from the environment, while it is imported. So they stand there for that moment only: child
processes do not inherit them. Who sets one of the variables, or has imported grpc before, keeps what he has. Releases
that nobody has tried them with are left alone: gRPC complains on the error output of names that it does not know.
The client never chooses: it is a guest in a program that may use gRPC for other things.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Final

CHOICES: Final = {
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
TRIED: Final = "1.85."


def _chosen() -> dict[str, str]:
    if "grpc" in sys.modules or not metadata.version("grpcio").startswith(TRIED):
        return {}
    return {name: value for name, value in CHOICES.items() if name not in os.environ}


_ours = _chosen()
os.environ.update(_ours)
try:
    import grpc  # noqa: F401 - that is what all this is for
finally:
    for _name in _ours:
        del os.environ[_name]
