"""What decides about dead letters: where they go, and when they are tried again. Pure."""
