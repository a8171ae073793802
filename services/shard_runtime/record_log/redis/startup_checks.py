"""Checks a store when a process starts; refuses settings, by name, that lose data or cannot work (CM-20, SR-20).

Every message says what was found, what was expected and what to do. `allow` names the findings an operator accepts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.redis.connection import (
    Command,
    ConnectionLostError,
    ErrorReply,
    HandshakeError,
    MasterLostError,
    NoMasterError,
    Reply,
    SentinelAccessError,
    Store,
    StoreAccessError,
    StoreConnection,
    StoreLoadingError,
    is_unavailable,
)
from shard_runtime.record_log.redis.keys import INCOMPLETE_RESTORE, META_CLUSTER_ID, META_LOG, is_restoring
from shard_runtime.record_log.store_usage import info_fields

_ASK_MS: Final = 5_000
_PAUSE_MS: Final = 100
#: How long the process waits for a store to load its data, and how often it logs that, in seconds.
_LOADING_MAX_S: Final = 3_600.0
_LOADING_REPORT_S: Final = 5.0
#: A wait longer than this, in seconds, is logged, so that a person at the terminal sees a reason.
_REPORT_AFTER_S: Final = 1.0
_VERSION_MIN: Final = 7
#: The findings that an operator may accept by name; any other prevents a start.
ALLOWABLE: Final = ("appendfsync", "appendonly", "default-user", "maxmemory-policy", "replicas", "version")
#: The first Valkey that was seen to load its append-only file whatever its default user may do; 9.1.1 and Redis 7.0.15
#: were seen not to (CM-247).
LOADS_ALL: Final = (9, 1, 2)
#: The commands by which nodes write in transactions, as the default user would execute them.
_LOADED: Final[tuple[Command, ...]] = (
    ("XADD", META_LOG, "*", "x", "x"), ("XTRIM", META_LOG, "MINID", "0"), ("HSET", META_LOG, "x", "x"),
    ("HDEL", META_LOG, "x"), ("SET", META_LOG, "x"), ("INCR", META_LOG), ("DEL", META_LOG),
    ("PEXPIREAT", META_LOG, 1),
)  # fmt: skip


_START_ONE: Final = (
    "Expected a Redis 7+ or Valkey server there. "
    "Start one (`valkey-server --appendonly yes --appendfsync always`), or correct store.url; with "
    "`sharegroups up` that is --store, and left out it starts a store of its own"
)
_CERTIFICATES: Final = (
    "Correct the certificates or the settings named here; for a certificate of your own authority name that in "
    "store.ssl.ca.location (docs/howto/secure.md, The store)"
)
_MASTER: Final = (
    "A process needs to reach the servers themselves, not only the Sentinels: at this address, from this host. If the "
    "server runs, set the addresses that Sentinels give out (`replica-announce-ip` and `replica-announce-port` in each "
    "server, `sentinel monitor` in each Sentinel); if it does not, Sentinels name another one after their "
    "down-after-milliseconds"
)
_SENTINELS: Final = (
    "Expected Sentinels there that watch a service of this name (`sentinel monitor NAME …`); store.url is "
    "redis+sentinel://HOST:26379,HOST:26379/NAME"
)
_LOGIN: Final = (
    "Correct store.url (`sharegroups up`: --store): redis://USER:PASSWORD@HOST:PORT, or "
    "redis://:PASSWORD@HOST:PORT for the default user; write characters such as @, / and # as %40, %2F and %23"
)
_SENTINEL_LOGIN: Final = (
    "Sentinels have users of their own, and the store's are not sent to them: set store.sentinel.password.location (a "
    "file), and store.sentinel.username unless it is their default user, who needs the right "
    "+sentinel|get-master-addr-by-name; for Sentinels without a password set neither"
)


log = structlog.get_logger(__name__)

Show = Callable[[str], None]

#: The events and fields of a wait as a person at the terminal reads them.
_WORDS: Final = {
    "store_loading": "waiting: the store loads its data",
    "store_replicas_awaited": "the store's replicas are awaited",
    "store_unreachable": "the store cannot be reached yet; still trying",
    "cause": "why",
}


class StoreCheckError(Exception):
    """The store must not be used in its present state; the message says what to change."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("\n".join(f"{finding.message}{_allow_hint(finding)} [{finding.name}]" for finding in findings))
        self.findings = findings


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement that is not met. `name`: the value of the flag that allows it, if it is one of ALLOWABLE."""

    name: str
    message: str


def _allow_hint(finding: Finding) -> str:
    if finding.name not in ALLOWABLE:
        return ""
    return f"; or accept it (`sharegroups up`: --allow {finding.name})"


@dataclass(frozen=True, slots=True)
class StoreNeeds:
    """This process's requirements for each node: connected replicas, and with `fsync_always` that every write is synced
    before it is answered."""

    replicas: int = 0
    fsync_always: bool = False


@dataclass(frozen=True, slots=True)
class _Facts:
    node: str
    server: Mapping[str, str]
    replication: Mapping[str, str]
    config: Mapping[str, str]
    """Only the settings that the store shows: managed stores refuse CONFIG."""


async def check_store(
    store: Store,
    cluster_id: str | None,
    replicas: int,
    wait_ms: int = 10_000,
    allow: Collection[str] = (),
    *,
    fsync_always: bool = False,
    show: Show | None = None,
) -> list[Finding]:
    """Require a usable store, waiting up to a bound, since replicas connect last when a store starts. Returns the
    findings that were allowed.

    Raises StoreCheckError; at once for refused credentials. `replicas`: how many must be connected. With `cluster_id`
    None the id is not checked (`init`, and `up` on a new data directory). `fsync_always`: whether the settings promise
    it (CM-12). `show` shows a person the cause of a wait; without it the cause is logged.
    """
    wait, needs = _Wait(wait_ms, show), StoreNeeds(replicas, fsync_always)
    while True:
        try:
            findings = await _checked(store, wait, cluster_id, needs, allow)
        except StoreLoadingError as error:
            wait.loads(str(error))
        except ConnectionLostError as error:  # it was reached: it may have been restarted meanwhile
            wait.cause = str(error)
            if wait.is_over:
                raise StoreCheckError([Finding("unreachable", f"store: {error}")]) from error
        else:
            break
        await asyncio.sleep(_PAUSE_MS / 1000)
    accepted = set(allow) & set(ALLOWABLE)
    refused = [finding for finding in findings if finding.name not in accepted]
    if refused:
        raise StoreCheckError(refused)
    return findings


async def await_loaded(store: Store, show: Show) -> None:
    """Wait while the store loads its data, and report that from time to time. Commands that do no other check of a
    store call this first. Raises StoreUnavailableError at the end of the wait, and when the store cannot be
    reached."""
    wait = _Wait(0, show)
    try:
        while True:
            try:
                await store.refresh()
                node = store.node_of(META_LOG) or ""
                connection = await store.connect(node)
                try:
                    await _loaded(connection, node, wait)
                    return
                finally:
                    await connection.close()
            except StoreLoadingError as error:
                wait.loads(str(error))
            await asyncio.sleep(_PAUSE_MS / 1000)
    except (ConnectionLostError, StoreCheckError) as error:
        raise StoreUnavailableError(str(error)) from error


class _Wait:
    """The time limit of a check: `wait_ms`, extended while the store loads its data, up to _LOADING_MAX_S. `cause`: the
    reason for the wait."""

    def __init__(self, wait_ms: int, show: Show | None) -> None:
        self.wait_ms: Final = wait_ms
        self._show = show
        self.cause = "it did not answer"
        self.advice = _START_ONE
        self._clock = asyncio.get_running_loop().time
        self._began_s = self._clock()
        self._reported_s = -_LOADING_REPORT_S
        self.deadline_s = self._began_s + wait_ms / 1000

    @property
    def left_s(self) -> float:
        """The seconds left to reach the store."""
        return max(self.deadline_s - self._clock(), 0.0)

    @property
    def is_over(self) -> bool:
        """True once the time limit has passed."""
        return self._clock() >= self.deadline_s

    def loads(self, why: str, done: str = "?", seconds_left: str = "?") -> None:
        """Extend the time limit, since the store answered that it loads its data. Raises StoreCheckError after
        _LOADING_MAX_S."""
        waited_s = self._clock() - self._began_s
        if waited_s > _LOADING_MAX_S:
            message = f"store: it still loads its data after {waited_s:.0f} s, {done} % are done: {why}; try later"
            raise StoreCheckError([Finding("unreachable", message)])
        if waited_s - self._reported_s >= _LOADING_REPORT_S:
            self._reported_s = waited_s
            self.report_wait("store_loading", cause=why, done_percent=done, seconds_left=seconds_left)
        self.deadline_s = self._clock() + self.wait_ms / 1000

    def report_wait(self, event: str, **fields: object) -> None:
        """Show a person the event in the words of _WORDS, or log it as a warning."""
        if self._show is None:
            log.warning(event, **fields)
        else:
            shown = ", ".join(f"{_WORDS.get(name, name)}: {value}" for name, value in fields.items())
            self._show(f"{_WORDS[event]} ({shown})")


async def _checked(
    store: Store, wait: _Wait, cluster_id: str | None, needs: StoreNeeds, allow: Collection[str]
) -> list[Finding]:
    """Return the requirements that are not met, once waiting no longer helps. Raises ConnectionLostError,
    StoreCheckError."""
    connection, node = await _reach(store, wait)
    loop = asyncio.get_running_loop()
    try:
        await _loaded(connection, node, wait)
        findings = await node_findings(connection, node, needs)
        deadline_s = max(wait.deadline_s, loop.time() + wait.wait_ms / 2000)  # leave replicas time after a long load
        report_at_s: float | None = loop.time() + _REPORT_AFTER_S
        while _only_replicas_missing(findings, allow) and loop.time() < deadline_s:
            if report_at_s is not None and loop.time() >= report_at_s:
                report_at_s = None
                wait.report_wait("store_replicas_awaited", node=node, cause=findings[0].message)
            await asyncio.sleep(_PAUSE_MS / 1000)
            findings = await node_findings(connection, node, needs)
    finally:
        await connection.close()
    for each in store.nodes:
        findings += await _loading_findings(store, each)
    return findings if cluster_id is None else findings + await _check_cluster(store, cluster_id)


async def _loaded(connection: StoreConnection, node: str, wait: _Wait) -> None:
    """Wait while the store says that it loads its data. Raises ConnectionLostError; StoreCheckError at the end of the
    wait."""
    while True:
        (reply,) = await connection.run([("INFO", "persistence")], _ASK_MS)
        found = {} if isinstance(_served(node, reply), ErrorReply) else info_fields(reply)
        if found.get("loading", "0") == "0":
            return
        wait.loads(f"store {node}", found.get("loading_loaded_perc", "?"), found.get("loading_eta_seconds", "?"))
        await asyncio.sleep(_PAUSE_MS / 1000)


def _served(node: str, reply: Reply) -> Reply:
    """Return the reply. Raises ConnectionLostError if it says that the node serves nothing for a while (CM-182)."""
    if is_unavailable(reply):
        raise ConnectionLostError(f"{node} does not serve at present: {reply}")
    return reply


async def node_findings(connection: StoreConnection, node: str, needs: StoreNeeds) -> list[Finding]:
    """The requirements that one node does not meet now. Raises ConnectionLostError, also when the node serves nothing
    for a while, and StoreCheckError when it refuses INFO."""
    facts = await _facts(connection, node)
    return [finding for check in _CHECKS if (finding := check(facts, needs)) is not None]


async def _loading_findings(store: Store, node: str) -> list[Finding]:
    """Return whether a node would skip transactions when it loads its append-only file, since its default user may not
    execute them (CM-247). Raises as `node_findings`."""
    connection = await store.connect(node)
    try:
        facts = await _facts(connection, node)
        if facts.config.get("appendonly") == "no" or loads_all(facts.server):
            return []
        asked: list[Command] = [("ACL", "DRYRUN", "default", *command) for command in _LOADED]
        replies = await connection.run(asked[:1], _ASK_MS)
        if isinstance(replies[0], ErrorReply):  # the user may not ask: nothing is known
            return []
        replies += await connection.run(asked[1:], _ASK_MS)
    finally:
        await connection.close()
    refused = [reply.decode(errors="replace") for reply in replies if isinstance(reply, bytes) and reply != b"OK"]
    return [_default_user(facts, refused[0])] if refused else []


def loads_all(server: Mapping[str, str]) -> bool:
    """Return whether a server is known to load its append-only file whatever its default user may do. `server`: the
    fields of INFO server."""
    words = server.get("valkey_version", "").split(".")[:3]
    return all(word.isdecimal() for word in words) and tuple(map(int, words)) >= LOADS_ALL


def _default_user(facts: _Facts, refused: str) -> Finding:
    found = facts.server.get("valkey_version")
    version = f"Valkey {found}" if found else f"Redis {facts.server.get('redis_version', 'of an unknown version')}"
    return Finding(
        "default-user",
        f"store {facts.node}: its user `default` lacks rights ({refused}), expected all, even if it is off: {version} "
        "loads its append-only file as this user, and a restart loses every transaction in it. Run `ACL SETUSER "
        "default ~* &* +@all`, which leaves it off if it is off, and write `user default off ~* &* +@all` into the "
        f"store's aclfile; or use Valkey {'.'.join(map(str, LOADS_ALL))} or later",
    )


def _only_replicas_missing(findings: list[Finding], allow: Collection[str]) -> bool:
    """Return whether missing replicas are the only finding that is not allowed: they connect some time after their
    master has started."""
    return {finding.name for finding in findings} - set(allow) == {"replicas"}


async def _reach(store: Store, wait: _Wait) -> tuple[StoreConnection, str]:
    """Connect to the node of the metadata log; keep trying while the store starts. Raises StoreLoadingError,
    StoreCheckError."""
    wait_ms, loop = wait.wait_ms, asyncio.get_running_loop()
    first_report = loop.call_later(
        _REPORT_AFTER_S, lambda: wait.report_wait("store_unreachable", cause=wait.cause, tries_for_s=wait_ms / 1000)
    )
    try:
        async with asyncio.timeout(wait.left_s):
            while True:
                try:
                    await store.refresh()
                    node = store.node_of(META_LOG) or ""
                    return await store.connect(node), node
                except StoreAccessError as error:
                    raise StoreCheckError([_credentials(error)]) from error
                except StoreLoadingError:
                    raise
                except ConnectionLostError as error:
                    wait.cause, wait.advice = str(error), _advice(error)
                await asyncio.sleep(_PAUSE_MS / 1000)
    except TimeoutError:
        message = f"store: no connection within {wait_ms} ms: {wait.cause.rstrip('.')}. {wait.advice}"
        raise StoreCheckError([Finding("unreachable", message)]) from None
    finally:
        first_report.cancel()


def _advice(error: ConnectionLostError) -> str:
    """Return what to do about a store that was not reached (CM-231)."""
    kinds = ((HandshakeError, _CERTIFICATES), (MasterLostError, _MASTER), (NoMasterError, _SENTINELS))
    return next((advice for kind, advice in kinds if isinstance(error, kind)), _START_ONE)


def _credentials(error: StoreAccessError) -> Finding:
    """Return what to do about refused credentials: those of the store, or of its Sentinels (CM-230)."""
    advice = _SENTINEL_LOGIN if isinstance(error, SentinelAccessError) else _LOGIN
    return Finding("credentials", f"store: {error}. {advice}")


async def _facts(connection: StoreConnection, node: str) -> _Facts:
    config: dict[str, str] = {}
    settings = ("appendonly", "appendfsync", "maxmemory-policy")
    commands: list[Command] = [("INFO", "server"), ("INFO", "replication")]
    commands += [("CONFIG", "GET", name) for name in settings]
    server, replication, *answers = await connection.run(commands, _ASK_MS)
    for reply in (server, replication, *answers):
        _served(node, reply)
    for refused in (server, replication):
        if isinstance(refused, ErrorReply):
            message = f"store {node}: INFO is refused: {refused}"
            raise StoreCheckError([Finding("credentials", message)])
    for name, reply in zip(settings, answers, strict=True):
        value = reply.get(name.encode()) if isinstance(reply, dict) else _second(reply)
        if isinstance(value, bytes):
            config[name] = value.decode()
        elif isinstance(reply, ErrorReply) and reply.is_missing_right:
            config[name] = "not shown to this user (give it the right +config|get)"
    return _Facts(node, info_fields(server), info_fields(replication), config)


def _second(reply: Reply) -> Reply:
    return reply[1] if isinstance(reply, list) and len(reply) == 2 else None


def _check_version(facts: _Facts, _needs: StoreNeeds) -> Finding | None:
    found = facts.server.get("redis_version", "")
    if found.split(".")[0].isdigit() and int(found.split(".")[0]) >= _VERSION_MIN:
        return None
    return Finding(
        "version",
        f"store {facts.node}: it speaks as Redis {found or 'of an unknown version'}, "
        "expected 7.0 or newer (any Valkey): upgrade it",
    )


def _check_role(facts: _Facts, _needs: StoreNeeds) -> Finding | None:
    found = facts.replication.get("role", "unknown")
    if found == "master":
        return None
    master = f"{facts.replication.get('master_host', '?')}:{facts.replication.get('master_port', '?')}"
    return Finding(
        "role",
        f"store {facts.node}: it is a {found}, expected a master: point store.url (`sharegroups up`: --store) at "
        f"{master}, or use redis+sentinel://",
    )


def _check_appendonly(facts: _Facts, _needs: StoreNeeds) -> Finding | None:
    found = facts.config.get("appendonly", "not shown")
    if found == "yes":
        return None
    return Finding(
        "appendonly",
        f"store {facts.node}: appendonly is {found}, expected yes, else a restart loses acknowledged records: "
        "run `CONFIG SET appendonly yes` and set it in the store's configuration",
    )


def _check_policy(facts: _Facts, _needs: StoreNeeds) -> Finding | None:
    found = facts.config.get("maxmemory-policy", "not shown")
    if found == "noeviction":
        return None
    return Finding(
        "maxmemory-policy",
        f"store {facts.node}: maxmemory-policy is {found}, expected noeviction, else logs are thrown away when memory "
        "is short: run `CONFIG SET maxmemory-policy noeviction` and set it in the store's configuration",
    )


def _check_fsync(facts: _Facts, needs: StoreNeeds) -> Finding | None:
    """Check `appendfsync`. For a store without an append-only file, or one that hides its settings, only
    `_check_appendonly` reports."""
    found = facts.config.get("appendfsync", "")
    weak = found not in ({"always"} if needs.fsync_always else {"always", "everysec"})
    if not weak or not found or facts.config.get("appendonly") != "yes":
        return None
    expected = "always, as store.fsync.always says" if needs.fsync_always else "always or everysec"
    return Finding(
        "appendfsync",
        f"store {facts.node}: appendfsync is {found}, expected {expected}, else a crash loses acknowledged records: "
        f"run `CONFIG SET appendfsync {'always' if needs.fsync_always else 'everysec'}` and set it in the store's "
        "configuration",
    )


def _check_replicas(facts: _Facts, needs: StoreNeeds) -> Finding | None:
    found, replicas = int(facts.replication.get("connected_slaves", "0")), needs.replicas
    if found >= replicas:
        return None
    return Finding(
        "replicas",
        f"store {facts.node}: {found} replicas are connected, and nothing is confirmed without {replicas}: start them, "
        "or lower store.replicas and min.insync.replicas in the settings of every process",
    )


_CHECKS: Final[tuple[Callable[[_Facts, StoreNeeds], Finding | None], ...]] = (
    _check_version,
    _check_role,
    _check_appendonly,
    _check_fsync,
    _check_policy,
    _check_replicas,
)


async def _check_cluster(store: Store, expected: str) -> list[Finding]:
    node = store.node_of(META_CLUSTER_ID) or ""
    connection = await store.connect(node)
    try:
        found = _served(node, (await connection.run([("GET", META_CLUSTER_ID)], _ASK_MS))[0])
    finally:
        await connection.close()
    if isinstance(found, bytes) and found.decode() == expected:
        return []
    if is_restoring(found):
        return [Finding("cluster-id", f"store {node}: {INCOMPLETE_RESTORE}")]
    if found is None or isinstance(found, ErrorReply):
        why = "" if found is None else f" ({found})"
        return [
            Finding(
                "cluster-id",
                f"store {node}: it holds no cluster id{why}, expected {expected}: it is empty or was wiped. "
                "Restore its data; or, if it is meant to be new, say so once with `sharegroups up --init`",
            )
        ]
    return [
        Finding(
            "other-cluster",
            f"store {node}: it belongs to cluster {found.decode()}, expected {expected}: correct store.url, or give "
            "this process a data.dir of its own (`sharegroups up`: --store, --data)",
        )
    ]
