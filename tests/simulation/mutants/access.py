"""Planted bugs in access control: missing checks, rows that require too little or too much, misread entries, and
permissions that stay in force after they were revoked. The matrix of `tests/scenarios/access` and its stories find
them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_MATRIX: Final = ("tests/scenarios/access/test_matrix.py",)
_DECISIONS: Final = ("tests/scenarios/access/test_decisions.py",)
_TAKEN: Final = ("tests/scenarios/access/test_rights_taken.py",)
_OWNERS: Final = ("tests/scenarios/access/test_owners.py",)
_LEAKS: Final = ("tests/scenarios/access/test_leaks.py",)
_NODE: Final = ("tests/integration/share_node/test_access.py",)
_TABLE: Final = "shard_runtime.rpc.table"


def _row(name: str, wrong: str, old: str, new: str) -> Mutant:
    """Return a bug in one row of the table."""
    return Mutant(name, wrong, ("CM-61", "GC-139"), (Edit(_TABLE, old, new),), _MATRIX)


ROWS: Final = (
    _row(
        "share-fetch-describes",
        "ShareFetch needs only DESCRIBE on the topic",
        'Rpc(_LEADER, "ShareFetch", _WRITES, _CLIENTS, _each(_O.READ, _G, _T))',
        'Rpc(_LEADER, "ShareFetch", _WRITES, _CLIENTS, {_G: _O.READ, _T: _O.DESCRIBE})',
    ),
    _row(
        "acknowledge-describes-the-group",
        "ShareAcknowledge needs only DESCRIBE on the group",
        'Rpc(_LEADER, "ShareAcknowledge", _WRITES, _CLIENTS, _each(_O.READ, _G, _T))',
        'Rpc(_LEADER, "ShareAcknowledge", _WRITES, _CLIENTS, {_G: _O.DESCRIBE, _T: _O.READ})',
    ),
    _row(
        "list-offsets-reads",
        "ListOffsets needs READ on the topic",
        'Rpc(_LEADER, "ListOffsets", _READS, _CLIENTS | _NODES, {_T: _O.DESCRIBE, _G: _O.DESCRIBE})',
        'Rpc(_LEADER, "ListOffsets", _READS, _CLIENTS | _NODES, {_T: _O.READ, _G: _O.DESCRIBE})',
    ),
    _row(
        "heartbeat-reads-topics",
        "a heartbeat needs READ on the topics that it names",
        '"ShareGroupHeartbeat", _WRITES, _CLIENTS, {_G: _O.READ, _T: _O.DESCRIBE})',
        '"ShareGroupHeartbeat", _WRITES, _CLIENTS, {_G: _O.READ, _T: _O.READ})',
    ),
    _row(
        "groups-deleted-by-readers",
        "DeleteGroups needs READ on the group",
        '"DeleteGroups", _WRITES, _CLIENTS, {_G: _O.DELETE})',
        '"DeleteGroups", _WRITES, _CLIENTS, {_G: _O.READ})',
    ),
)

CHECKS: Final = (
    Mutant(
        "groups-deleted-unasked",
        "DeleteGroups checks nothing",
        ("GC-90",),
        (
            Edit(
                "group_coordinator.service_deletions",
                "            around.require_group(context, group_id)\n            around.require_group_id(group_id)\n"
                "            mutations.admit(1)\n            with",
                "            around.require_group_id(group_id)\n            mutations.admit(1)\n            with",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "all-topics-listed",
        "Metadata of all topics leaves none out",
        ("CM-61",),
        (
            Edit(
                "shard_runtime.cluster.lookups",
                "if context.may(ResourceType.TOPIC, topic.name):",
                "if topic.name:",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "transactional-id-unasked",
        "Produce checks the topic only",
        ("CM-61",),
        (
            Edit(
                "partition_leader.topic_rpc.produce",
                "            if refused is not None:\n                return refused\n        return self._dir",
                "        return self._dir",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "acknowledged-unasked",
        "acknowledgements of a topic that may not be read are applied",
        ("GC-139",),
        (
            Edit(
                "partition_leader.share_rpc.requests",
                "                raise run.refused[partition.topic_id]\n            delay_max_ms",
                "                pass\n            delay_max_ms",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "letters-anywhere",
        "anyone who may alter a group's configs can name any dead-letter topic",
        ("CM-61",),
        (
            Edit(
                "shard_runtime.cluster.config_admin",
                "    context.require(ResourceType.TOPIC, topic, Operation.WRITE)\n",
                "",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "topics-before-the-group",
        "a refused ListOffsets shows an offset and the topic's error before the group's",
        ("GC-149",),
        (
            Edit(
                "partition_leader.topic_rpc.fetch_and_offsets",
                "                    await self._list_offset(partition, asked, one, context, committed=committed)\n"
                '                    if asked.HasField("share_group_id"):\n',
                '                    if asked.HasField("share_group_id"):\n',
            ),
            Edit(
                "partition_leader.topic_rpc.fetch_and_offsets",
                '                    if asked.HasField("share_group_id"):  # first',
                "                    await self._list_offset(partition, asked, one, context, committed=committed)\n"
                '                    if asked.HasField("share_group_id"):  # first',
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "assigned-topics-only",
        "ShareGroupDescribe does not ask for topics that members only name",
        ("GC-127",),
        (
            Edit(
                "group_coordinator.service",
                "{*group.topic_names.values(), *(name for member in group.members for name in member.subscribed)}",
                "{*group.topic_names.values()}",
            ),
        ),
        _DECISIONS,
    ),
    Mutant(
        "unknown-topic-in-other-words",
        "a refused deletion of a topic that does not exist has another text",
        ("CM-61",),
        (
            Edit(
                "shard_runtime.cluster.topic_admin",
                "        context.require(ResourceType.TOPIC, name)\n"
                "        context.require(ResourceType.TOPIC, name, Operation.DESCRIBE)\n",
                "        context.require(ResourceType.TOPIC, name, Operation.DESCRIBE)\n",
            ),
        ),
        _LEAKS,
    ),
    Mutant(
        "nodes-port-open",
        "the port for nodes admits every certificate for unary calls",
        ("CM-61",),
        (Edit("shard_runtime.rpc.adapter", "            gate.admit(caller)\n", ""),),
        _NODE,
    ),
    Mutant(
        "nodes-stream-admitted-once",
        "the port for nodes does not check the messages of a stream",
        ("CM-61",),
        (
            Edit(
                "shard_runtime.rpc.adapter",
                "        self._gate.admit(self.context)  # each message:",
                "        # each message:",
            ),
        ),
        _NODE,
    ),
)

ENTRIES: Final = (
    Mutant(
        "denials-include",
        "a denied READ takes DESCRIBE, too",
        ("GC-148",),
        (
            Edit(
                "kip932.acls",
                "            elif acl.operation in {operation, Operation.ALL}:\n                return",
                "            elif acl.operation in enough:\n                return",
            ),
        ),
        _DECISIONS,
    ),
    Mutant(
        "prefix-star-is-all",
        "an entry for the prefix * matches every name",
        ("GC-148",),
        (
            Edit(
                "kip932.acls",
                "        for length in self._lengths:\n",
                '        yield from self._prefixed.get((resource_type, "*"), ())\n'
                "        for length in self._lengths:\n",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "hosts-ignored",
        "an entry for one host applies to all",
        ("GC-148", "CM-61"),
        (
            Edit(
                "kip932.acls",
                "            if acl.host not in (host, ANY_HOST):\n                continue\n",
                "",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "any-topic-though-denied",
        "WRITE on any topic is not checked against denials",
        ("GC-148",),
        (
            Edit(
                "kip932.acls",
                "        return any(not denied.includes(acl) for acl in allowing)\n",
                "        return bool(allowing)\n",
            ),
        ),
        _MATRIX,
    ),
    Mutant(
        "decisions-kept",
        "decisions are remembered beyond a change of the entries",
        ("CM-61",),
        (
            Edit(
                "shard_runtime.rpc.access",
                "        self._decisions.clear()\n        self.version += 1",
                "        self.version += 1",
            ),
        ),
        _DECISIONS,
    ),
)

LIVE: Final = (
    Mutant(
        "locks-kept",
        "when a permission is revoked, records stay locked until their locks expire",
        ("PL-531",),
        (Edit("share_node.node.process", "self.access.subscribe(self._roles.rights_changed)", "pass"),),
        _TAKEN,
    ),
    Mutant(
        "waits-go-on",
        "waiting fetches do not end when a permission is revoked",
        ("PL-531",),
        (Edit("partition_leader.share_rpc.session_rights", "        self._conclude(key, lost)\n", ""),),
        _TAKEN,
    ),
    Mutant(
        "delivered-after-the-change",
        "a fetch that was under way during a change is not checked again",
        ("PL-531",),
        (Edit("partition_leader.share_rpc.requests", "        self._check_rights_again(run)\n", ""),),
        _TAKEN,
    ),
    Mutant(
        "the-group-not-checked-again",
        "what was acquired is delivered although the group may no longer be read",
        ("PL-531",),
        (Edit("partition_leader.share_rpc.requests", "if error is not None or not reads:", "if error is not None:"),),
        ("tests/unit/partition_leader/share_rpc/test_session_rights.py",),
    ),
    Mutant(
        "sessions-stay-locked-in",
        "who lost the group cannot close its session",
        ("PL-531",),
        (
            Edit(
                "partition_leader.share_rpc.requests",
                "            if self.sessions.is_opened_by(key, request.caller.principal):\n                return\n",
                "",
            ),
        ),
        _TAKEN,
    ),
    Mutant(
        "sessions-of-all",
        "every principal may use every session",
        ("PL-530",),
        (
            Edit(
                "partition_leader.sessions.core.session",
                "    if request.principal != session.principal:",
                "    if request.principal is False:",
            ),
        ),
        _OWNERS,
    ),
    Mutant(
        "members-of-all",
        "every principal may act for every member",
        ("GC-23b",),
        (
            Edit(
                "group_coordinator.core.heartbeat",
                "    if member is not None and member.principal and member.principal != command.principal:",
                "    if member is None and command.refused:",
            ),
        ),
        _OWNERS,
    ),
    Mutant(
        "owners-forgotten",
        "the principal of a member is not in its record",
        ("GC-23b",),
        (Edit("group_coordinator.codec", "            principal=value.principal,\n", ""),),
        _OWNERS,
    ),
)

ACCESS: Final = (*ROWS, *CHECKS, *ENTRIES, *LIVE)
