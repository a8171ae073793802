"""`sharegroups transactions`: the actions of kafka-transactions.sh (CT-130 to CT-134)."""
