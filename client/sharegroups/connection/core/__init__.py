"""Back-off, throttle times, and why a client gets no answer. Pure."""
