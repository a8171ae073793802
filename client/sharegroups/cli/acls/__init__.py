"""`sharegroups acls`: the actions of kafka-acls.sh, and explain (CT-137)."""
