"""`sharegroups transactions`: what kafka-transactions.sh does (CT-130 to CT-134)."""
