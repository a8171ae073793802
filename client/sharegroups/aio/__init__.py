"""The clients for asyncio; the blocking ones of `sharegroups` wrap these."""
