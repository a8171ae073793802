"""What an operator wants to know about share groups: which one is behind, and why.

Pure: snapshots of progress and lists of groups in, rows and their texts out. It asks no cluster and reads no clock.
"""
