"""The pure part of the share coordinator: it decides and replays, without a log, a clock or messages."""
