"""The store as `sharegroups up` runs it, and as the commands find it: embedded, on a directory, or at a URL."""
