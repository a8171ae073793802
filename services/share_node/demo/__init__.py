"""`sharegroups demo`: the whole story on real input, with totals that are checked without the queue (CM-71)."""
