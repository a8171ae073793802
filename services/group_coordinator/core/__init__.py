"""The pure part of the group coordinator: it decides and replays; it never waits, reads a clock, or decodes bytes."""
