"""Share sessions, and the members that this leader has lost (partition-leader.md §5, PL-527)."""
