"""The pure part: it decides and replays, and has no log, no clock and no messages."""
