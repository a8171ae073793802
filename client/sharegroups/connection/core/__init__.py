"""Back-off, throttle times, and the diagnosis of a client that gets no response. Pure."""
