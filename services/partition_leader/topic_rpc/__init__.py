"""Produce, Fetch, ListOffsets and DeleteRecords: between messages and topic logs (CM-42, CM-45)."""
