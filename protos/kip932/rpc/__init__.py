"""How a message reaches a peer: methods, the Transport protocol, and its gRPC client side."""

from kip932.rpc.transport import ClientStream, Method, Transport, TransportError, TransportStatus, service_methods

__all__ = ["ClientStream", "Method", "Transport", "TransportError", "TransportStatus", "service_methods"]
