"""Imports grpcio for service processes, with options that suit them. They must import this module first.

- By default gRPC 1.85 reads and writes sockets on threads of its EventEngine: a message crosses three threads before
  the event loop gets it. When the thread that waits for completions polls the sockets itself, as earlier releases did,
  it crosses one. At one record per fetch that halves a node's context switches (docs/speed.md).
- By default every fork stops gRPC's threads and starts them again, for children that go on using gRPC. grpc.aio cannot
  be used in such a child. Our children only start other programs, so the handlers are a risk without a use.

gRPC reads these options once, from the environment, while it is imported. So the variables are set only for that
moment, and child processes do not inherit them. A variable that is already set, or a grpc that is already imported, is
left as it is. So are grpcio releases that were not tried with these options: gRPC prints a complaint about variables
that it does not know. The client library never sets them: its program may use gRPC for other things.
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
    import grpc  # noqa: F401 - this import, with the variables set, is the purpose of the module
finally:
    for _name in _ours:
        del os.environ[_name]
