"""Imports grpcio for service processes, with choices that suit them. They must import this module first."""

from __future__ import annotations

from kip932.grpc_library import FORKLESS, POLLING, choosing

with choosing({**POLLING, **FORKLESS}):
    import grpc  # noqa: F401 - this import, with these choices in force, is the purpose of the module
