"""`sharegroups scaler`: how much work a share group has, for KEDA to scale its workers by."""
