"""Carries messages to a peer: methods, the Transport protocol, and its client side over gRPC."""

from kip932.rpc.transport import (
    CLIENT_ID_KEY,
    ClientStream,
    Method,
    Transport,
    TransportError,
    TransportStatus,
    service_methods,
)

__all__ = [
    "CLIENT_ID_KEY",
    "ClientStream",
    "Method",
    "Transport",
    "TransportError",
    "TransportStatus",
    "service_methods",
]
