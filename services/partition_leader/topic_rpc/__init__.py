"""The RPCs Produce, Fetch, ListOffsets and DeleteRecords on topic logs (CM-42, CM-45)."""
