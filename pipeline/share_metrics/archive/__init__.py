"""The directory of an ingest: its files, their commits and their compaction, and how rows are read back."""
