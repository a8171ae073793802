"""`sharegroups backup` and `restore`: a cluster's streams as files, and files as the streams of a new store (CM-140).

`format` and `manifest` are pure; `segments` writes and reads files; `taking` and `restoring` wait for the store.
"""
