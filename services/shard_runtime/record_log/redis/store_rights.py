"""The rights that a node needs in its store: the rules of an ACL user, and a check at the start (CM-184).

The check asks a store to queue one command of each kind in a MULTI, and closes the connection. The store refuses to
queue what the user may not do, and executes none of it. So a missing right ends a start with its name, instead of an
error in the middle of the work.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from shard_runtime.record_log.protocol import ShardKind, StoreUnavailableError
from shard_runtime.record_log.redis.connection import Command, ConnectionLostError, ErrorReply, Reply, Store
from shard_runtime.record_log.redis.keys import (
    META_CLUSTER_ID,
    META_LOG,
    NODE_NEXT_ID,
    NODES,
    TRANSACTION_PREFIX,
    WAKE_CHANNEL,
    owners_key,
)
from shard_runtime.record_log.redis.startup_checks import Finding, StoreCheckError

_ASK_MS: Final = 5_000
#: A shard that does not exist, of each kind.
_PROBE: Final = "rights"
#: The constants that hold the numbers of shards.
_CONFIG: Final = ("gc:config", "sgs:config")
_KEYS: Final = ("{meta}:*", "{nodes}*", "{owners}:*", f"{TRANSACTION_PREFIX}*", *_CONFIG)
#: Commands without which a node works: managed stores hide their configuration, and the library's name is for people.
_DISPENSABLE: Final = frozenset({"acl|dryrun", "client|setinfo", "config|get"})
_CLUSTER_ONLY: Final = frozenset({"cluster|info", "cluster|slots"})
#: Commands whose first argument is a part of their name.
_CONTAINERS: Final = frozenset({"ACL", "CLIENT", "CLUSTER", "CONFIG", "SCRIPT", "XINFO"})
_USER: Final = re.compile(r"User (\S+) has no permissions")


def _samples(kinds: Collection[ShardKind]) -> list[Command]:
    """Return a command of each kind, with a key for each pattern."""
    shards = sorted("{" + f"{kind.value}:{_PROBE}" + "}" for kind in kinds)
    log, owner, transaction = f"{shards[0]}:log", f"{shards[0]}:owner", f"{TRANSACTION_PREFIX}{_PROBE}}}"
    return [
        ("ACL", "DRYRUN", "default", "PING"), ("CLIENT", "SETINFO", "LIB-NAME", "x"), ("CLUSTER", "INFO"),
        ("CLUSTER", "SLOTS"),
        ("CONFIG", "GET", "appendonly"), ("DEL", log), ("EVALSHA", "0" * 40, 1, owner), ("EXISTS", log),
        ("GET", META_CLUSTER_ID), ("HDEL", NODES, "x"), ("HGET", NODES, "x"), ("HGETALL", owners_key(ShardKind.GROUP)),
        ("HMGET", owner, "x"), ("HSCAN", f"{shards[0]}:readers", "0"), ("HSET", transaction, "x", "x"),
        ("INCR", NODE_NEXT_ID), ("INFO", "server"), ("PEXPIREAT", transaction, 1), ("PING",),
        ("PUBLISH", WAKE_CHANNEL, "x"), ("SCAN", "0"), ("SCRIPT", "LOAD", "return 1"), ("SUBSCRIBE", WAKE_CHANNEL),
        ("TIME",), ("WAIT", 0, 1), ("XADD", log, "NOMKSTREAM", "1-1", "x", "x"), ("XINFO", "STREAM", log),
        ("XRANGE", log, "-", "+"), ("XREVRANGE", META_LOG, "+", "-"), ("XTRIM", log, "MINID", "0"),
        *(("SET", key, "x", "NX") for key in _CONFIG), *(("EXISTS", f"{shard}:log") for shard in shards[1:]),
    ]  # fmt: skip


def _name(command: Command) -> str:
    """Return a command's name as rules have it: `xadd`, `script|load`."""
    words = [str(word).lower() for word in command[:2]]
    return "|".join(words) if command[0] in _CONTAINERS else words[0]


def acl_rules(kinds: Collection[ShardKind], *, clustered: bool = False) -> list[str]:
    """Return the rules of a user for a node with shards of these kinds: keys, channel and commands."""
    keys = [f"{{{kind.value}:*" for kind in ShardKind if kind in kinds]
    names = {_name(command) for command in _samples(kinds)} | {"exec", "multi"}
    names -= frozenset() if clustered else _CLUSTER_ONLY
    return [*(f"~{key}" for key in (*keys, *_KEYS)), f"&{WAKE_CHANNEL}", *(f"+{name}" for name in sorted(names))]


async def check_rights(store: Store, kinds: Collection[ShardKind]) -> None:
    """Require the rights for shards of these kinds on every node of a store. Raises StoreCheckError, which names those
    that are missing, and StoreUnavailableError."""
    try:
        if not store.nodes:
            await store.refresh()
        missing = {node: found for node in store.nodes if (found := await _missing(store, node, kinds))}
    except ConnectionLostError as error:
        raise StoreUnavailableError(str(error)) from error
    if missing:
        raise StoreCheckError([_finding(node, refusals) for node, refusals in missing.items()])


async def _missing(store: Store, node: str, kinds: Collection[ShardKind]) -> list[tuple[Command, ErrorReply]]:
    """Return the commands that a node refuses to queue for this user, with its replies."""
    asked = [
        command for command in _samples(kinds)
        if (name := _name(command)) not in _DISPENSABLE and (store.clustered or name not in _CLUSTER_ONLY)
    ]  # fmt: skip
    connection = await store.connect(node)
    try:
        opening: list[Command] = [("EXEC",), ("MULTI",)]  # EXEC without MULTI executes nothing
        replies = await connection.run(opening, _ASK_MS)
        refused = _refusals(opening, replies)
        if replies[1] == b"OK":  # without an open MULTI they would be executed
            refused += _refusals(asked, await connection.run(asked, _ASK_MS))
        return refused
    finally:
        await connection.close()  # which discards the MULTI


def _refusals(commands: Sequence[Command], replies: Sequence[Reply]) -> list[tuple[Command, ErrorReply]]:
    pairs = zip(commands, replies, strict=True)
    return [(command, reply) for command, reply in pairs if isinstance(reply, ErrorReply) and reply.is_missing_right]


def _finding(node: str, refused: Sequence[tuple[Command, ErrorReply]]) -> Finding:
    """Describe what a user lacks, with the rules that give it."""
    user, rules = "USER", dict[str, None]()
    for command, reply in refused:
        if found := _USER.search(reply.message):
            user = found.group(1)
            rules[f"+{_name(command)}"] = None
        else:
            rules[_pattern(command)] = None
    first = refused[0][1]
    return Finding(
        "credentials",
        f"store {node}: its user lacks rights that this process needs ({first.code} {first.message}): "
        f"ACL SETUSER {user} {' '.join(rules)}. docs/howto/deploy.md has the rules of each user",
    )


def _pattern(command: Command) -> str:
    """Return the rule for the key or the channel of a command."""
    if command[0] in {"PUBLISH", "SUBSCRIBE"}:
        return f"&{WAKE_CHANNEL}"
    key = str(command[3] if command[0] == "EVALSHA" else command[2] if command[0] == "XINFO" else command[1])
    tag, colon, _ = key.partition(":")
    shared = next((pattern for pattern in _KEYS if key.startswith(pattern.removesuffix("*"))), None)
    return f"~{shared or f'{tag}{colon}*'}"
