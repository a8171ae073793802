"""`sharegroups dlq`: dead letters are listed, shown, sent back to where they came from, deleted (CT-120 to CT-128)."""
