"""The pure part: decides and replays; knows no log, no clock and no wire."""
