"""Spans, metrics and trace contexts of the clients, by OpenTelemetry's conventions for messaging (CL-171 to CL-176).

Each client has one object of this package, whose `on` is False unless the program has set up OpenTelemetry; nothing
else of it is called until then. OpenTelemetry is imported by the program, never by this package on its own.
"""
