"""Which partitions a member fetches here, and which members are gone. Pure."""
