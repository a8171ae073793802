"""The server side of gRPC: services as plain objects, health, reflection, drain."""
