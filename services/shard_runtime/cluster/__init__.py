"""The parts that every process of a cluster has: nodes, metadata and ClusterService (CM-1…4, CM-20…23)."""
