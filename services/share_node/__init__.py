"""The composition root: it builds nodes from an embedded store and the three roles, for `sharegroups up` and services.

It may import every service; nothing imports it. The client reaches it only through the entry points
`sharegroups.commands`.
"""
