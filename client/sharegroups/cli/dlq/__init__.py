"""`sharegroups dlq`: lists, shows and deletes dead letters, and sends them back to their topics (CT-120 to CT-128)."""
