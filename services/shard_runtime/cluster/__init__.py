"""Nodes, metadata and ClusterService: what every process of a cluster has (CM-1…4, CM-20…23)."""
