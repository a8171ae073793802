"""What the logs hold as bytes: replay, tools and the metrics pipeline read the same messages."""
