"""`sharegroups scaler`: reports to KEDA how much work a share group has, to scale its workers."""
