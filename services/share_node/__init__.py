"""The composition root: an embedded store and the three roles wired into nodes, for `sharegroups up` and the services.

It may import every service; nothing imports it. The client reaches it only through the entry points
`sharegroups.commands`.
"""
