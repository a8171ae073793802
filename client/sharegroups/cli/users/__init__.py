"""`sharegroups users`: users with passwords (CT-138)."""
