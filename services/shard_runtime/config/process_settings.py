"""The settings of one process: read once from flags, environment and a TOML file, checked, then frozen.

Flags win over the environment (`SHAREGROUPS_…`), the environment over the file, the file over defaults. An undeclared
setting is refused; the message suggests a similar name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

from kip932.log_lines import FORMS
from kip932.principal_rules import parse_rules
from kip932.setting import (
    AnySetting,
    ConfigType,
    Setting,
    SettingTable,
    boolean,
    integer,
    listing,
    string,
    table,
)
from kip932.settings_file import FILE_VARIABLE, settings_in
from kip932.store_settings import STORE_SETTINGS, store_hint
from shard_runtime.config import kafka_configs
from shard_runtime.config.kafka_configs import BROKER_CONFIGS
from shard_runtime.ownership.placement import ROLES

T = TypeVar("T")

PREFIX: Final = "SHAREGROUPS_"
#: The command line's own variable: the address its clients bootstrap from. A service's environment may contain it.
CLIENT_VARIABLE: Final = "SHAREGROUPS_BOOTSTRAP"
_ADVERTISED: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\s\[\]/]+)(?::([0-9]{1,5}))?")


def url_path(url: str) -> Path | None:
    """Return the path of a `file:` URL; None for an https URL. Raises ValueError for any other text."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path.startswith("/"):
        return Path(unquote(parts.path))
    if parts.scheme == "https" and parts.hostname:
        return None
    raise ValueError(f"{url!r} is neither file:///PATH nor https://HOST/…")


def advertised(text: str) -> tuple[str, int]:
    """Return host and port of an advertised address; port 0 where it has none. Raises ValueError for any other text."""
    found = _ADVERTISED.fullmatch(text)
    if found is None or (found[2] and not 0 < int(found[2]) <= 65_535):
        raise ValueError(f"{text!r} is neither HOST:PORT nor HOST, as in kafka-1.example.com:9092")
    return found[1], int(found[2] or 0)


def _host_and_port(text: str) -> None:
    if text:
        advertised(text)


def _principal_rules(text: str) -> None:
    parse_rules(text)


def _jwks_url(text: str) -> None:
    if text:
        url_path(text)


NODE_NAME = string("node.name", "", "Stable name of this node; default <host>-<roles>-<port>.")  # CM-1
NODE_RACK = string("node.rack", "", "Rack of this node; empty for none.")
NODE_ROLES: Setting[tuple[str, ...]] = listing(
    "node.roles", tuple(sorted(ROLES)), "What this process serves.", choices=tuple(sorted(ROLES))
)
LISTEN_HOST = string("listen.host", "127.0.0.1", "Address to listen on.")
LISTEN_PORT = integer("listen.port", 0, "Port to listen on; 0 for any free one.", low=0, high=65_535)
ADVERTISED_HOST = string(
    "advertised.host", "", "Host that others reach this node by; default listen.host, unless that is 0.0.0.0 or ::."
)
ADVERTISED_PORT = integer("advertised.port", 0, "Port that others reach this node by; 0 for the one listened on.",
                          low=0, high=65_535)  # fmt: skip
EXTERNAL_LISTEN_PORT = integer(  # CM-237
    "external.listen.port", -1,
    "Port on listen.host for clients from elsewhere, as from outside of a Kubernetes cluster: answers there name nodes "
    "by external.advertised.address; 0 for any free one, -1 for none. Ports for clients share max.connections equally.",
    low=-1, high=65_535,
)  # fmt: skip
EXTERNAL_ADVERTISED_ADDRESS = string(
    "external.advertised.address", "",
    "HOST:PORT, or HOST alone, by which those clients reach external.listen.port; default the host of advertised.host "
    "and the port that is listened on.",
    check=_host_and_port,
)  # fmt: skip
KAFKA_EXTERNAL_LISTEN_PORT = integer(
    "kafka.external.listen.port", -1,
    "As external.listen.port, for Kafka's own clients and tools.", low=-1, high=65_535,
)  # fmt: skip
KAFKA_EXTERNAL_ADVERTISED_ADDRESS = string(
    "kafka.external.advertised.address", "",
    "HOST:PORT, or HOST alone, by which Kafka's clients reach kafka.external.listen.port; default the host of "
    "external.advertised.address, else of advertised.host, and the port that is listened on.",
    check=_host_and_port,
)  # fmt: skip
KAFKA_LISTEN_PORT = integer(  # KL-7
    "kafka.listen.port", -1,
    "Port on listen.host for Kafka's own clients and tools; 0 for any free one, -1 for none. Ports for "
    "clients share max.connections equally.", low=-1, high=65_535,
)  # fmt: skip
KAFKA_ADVERTISED_ADDRESS = string(
    "kafka.advertised.address", "",
    "HOST:PORT, or HOST alone, by which Kafka's clients reach kafka.listen.port; default the host of advertised.host "
    "and the port that is listened on.",
    check=_host_and_port,
)  # fmt: skip
INTERNAL_LISTEN_HOST = string(
    "internal.listen.host",
    "",
    "Address on which the services between nodes listen; default listen.host.",  # CM-80
)
INTERNAL_LISTEN_PORT = integer("internal.listen.port", 0, "Port of the services between nodes; 0 for any free one.",
                               low=0, high=65_535)  # fmt: skip
INTERNAL_ADVERTISED_HOST = string(
    "internal.advertised.host",
    "",
    "Host that other nodes reach those services by; default internal.listen.host when that is set and is not 0.0.0.0 "
    "or ::, else that of advertised.host.",
)
INTERNAL_ADVERTISED_PORT = integer("internal.advertised.port", 0,
                                   "Port that other nodes reach those services by; 0 for the one listened on.",
                                   low=0, high=65_535)  # fmt: skip
SSL_CERTIFICATE = string(  # CM-60
    "ssl.certificate.location", "",
    "PEM file with this node's certificate and the intermediate ones after it: turns on TLS on both ports. This and "
    "the two files below are read again every 5 s.",
)  # fmt: skip
SSL_KEY = string("ssl.key.location", "", "PEM file with the key of that certificate, not encrypted.")
SSL_CA = string(
    "ssl.ca.location", "",
    "PEM file with the certificates of the authorities by which clients and other nodes are checked.",
)  # fmt: skip
SSL_CLIENT_AUTH = string(
    "ssl.client.auth", "none",
    "Whether clients must present a certificate of those authorities. Other nodes must in any case.",
    choices=("none", "required"),
)  # fmt: skip
PRINCIPAL_RULES = string(  # CM-187
    "ssl.principal.mapping.rules", "DEFAULT",
    "What makes a caller's name of its certificate's distinguished name: RULE:pattern/replacement/ with L or U after "
    "it, or DEFAULT, the common name; the first one that matches, separated by commas.",
    check=_principal_rules,
)  # fmt: skip
JWKS_URL = string(  # CM-186
    "sasl.oauthbearer.jwks.endpoint.url", "",
    "The key set (JWKS) by which clients' tokens (JWT) are checked: file:///PATH, read again every 5 s, or an https "
    "URL. Without it no JWT is accepted.",
    check=_jwks_url,
)  # fmt: skip
JWKS_REFRESH_MS = integer(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000,
    "How often the key set is fetched from an https URL; also, within 10 s, when a token has a key that is not in it.",
    low=1_000, unit="ms",
)  # fmt: skip
TOKEN_AUDIENCES: Setting[tuple[str, ...]] = listing(
    "sasl.oauthbearer.expected.audience", (),
    "Audiences (aud); a token must have one of them. Without this setting tokens for other services of the issuer "
    "are accepted, too.",
)  # fmt: skip
TOKEN_ISSUER = string("sasl.oauthbearer.expected.issuer", "", "Issuer (iss) that a token must have; empty for any.")
TOKEN_NAME_CLAIM = string("sasl.oauthbearer.sub.claim.name", "sub", "Claim of a token that has the name of its user.")
TOKEN_SKEW_S = integer(
    "sasl.oauthbearer.clock.skew.seconds", 30,
    "By how much the clock of a token's issuer may differ from this node's.", low=0, high=3_600, unit="s",
)  # fmt: skip
STATIC_TOKENS = string(
    "sasl.oauthbearer.static.tokens.location", "",
    "File with tokens that do not end, a line each: User:NAME and the token, or sha256: and the token's SHA-256. It is "
    "read again every 5 s; only its owner, and at most its group, may read plain tokens.",
)  # fmt: skip
HEALTH_LISTEN_PORT = integer(
    "health.listen.port", -1,
    "Port that serves only the health services, without TLS, on listen.host, for probes that cannot use TLS; 0 for "
    "any free one, -1 for none.", low=-1, high=65_535,
)  # fmt: skip
ALLOW_PLAINTEXT = boolean("allow.plaintext", False, "Whether to listen without TLS beyond loopback.")  # CM-60
DATA_DIR = string("data.dir", "", "Where this node keeps its lock and, with an embedded store, its data.")
CLOCK_SKEW_MAX_MS = integer(
    "clock.skew.max.ms", 10_000,
    "By how much this host's clock and the store's may differ; beyond it no record is deleted by age.",  # CM-170
    low=1_000, high=3_600_000, unit="ms")  # fmt: skip
LEASE_MS = integer("lease.ms", 3_000, "How long an owner may serve after its last renewal.",  # CM-3
                   low=500, high=60_000, unit="ms")  # fmt: skip
RENEW_INTERVAL_MS = integer("lease.renew.interval.ms", 1_000, "How often leases are renewed.",  # CM-3
                            low=100, high=20_000, unit="ms")  # fmt: skip
REPLAYS_MAX = integer("shard.replays.max", 4, "Shards that are replayed at the same time.", low=1, high=64)
SHARD_QUEUE_MAX = integer("shard.queue.max", 10_000, "Operations that may wait for one shard.", low=1)
COMPACTION_ENTRIES_MIN = integer("shard.compaction.entries.min", 5_000,
                                 "Entries below which a shard's stream is not compacted.", low=10)  # fmt: skip
# SR-29
HISTORY_MS = integer("shard.history.ms", 600_000, "How long entries that no replay needs are kept for readers.",
                     low=0, unit="ms")  # fmt: skip
READERS_MAX_LAG_MS = integer(
    "shard.readers.max.lag.ms", 1_800_000,
    "Age up to which entries are kept that a live reader has not read yet, beyond shard.history.ms.",  # SR-29
    low=0, high=86_400_000, unit="ms")  # fmt: skip
LOST_TAIL_JUMP = integer("log.lost.tail.jump.offsets", 1_000_000,
                         "How far a log end jumps when the store may have lost its tail.", low=1)  # fmt: skip
RETENTION_INTERVAL_MS = integer(
    "log.retention.check.interval.ms", 30_000, "How often a leader deletes what is past retention.",  # CM-45
    low=100, high=3_600_000, unit="ms")  # fmt: skip
CONSUMED_INTERVAL_MS = integer(  # CM-160
    "sharegroups.retention.consumed.interval.ms", 5_000,
    "How often a leader deletes what every group has finished, in topics with sharegroups.retention=consumed.",
    low=100, high=3_600_000, unit="ms",
)  # fmt: skip
TAIL_CACHES_BYTES = integer(  # CM-46
    "log.tail.caches.bytes", 268_435_456,
    "Memory for the newest batches of all partitions that a leader leads: at most 16 MiB for each of them, and "
    "at least 8 KiB. What is not in it is read from the store.", low=0, unit="bytes", kind=ConfigType.LONG,
)  # fmt: skip
DRAIN_GRACE_MS = integer("drain.grace.ms", 10_000,
                         "How long open calls may take when the process ends; streams then get a second at most.",
                         low=0, unit="ms")  # fmt: skip
MESSAGE_MAX_BYTES = integer("rpc.message.max.bytes", 67_108_864, "Largest message of a call.", low=65_536, unit="bytes")
REQUEST_MAX_BYTES = integer(
    "rpc.request.max.bytes", 8_388_608,
    "Largest request; a topic whose max.message.bytes is greater needs more.", low=65_536, unit="bytes",  # CM-91
)  # fmt: skip
MEMORY_BYTES = integer(
    "rpc.memory.bytes", 0,
    "Bytes of requests and answers in flight; 0: an eighth of the container's memory limit, else of the "  # CM-92
    "machine's memory, from 64 MiB to 1 GiB.", low=0, unit="bytes", kind=ConfigType.LONG,
)  # fmt: skip
CONNECTION_AGE_MS = integer(
    "connections.max.age.ms", 1_800_000,
    "How old a connection may get: then its clients and nodes use a new one, which checks their certificates again. "
    "It is closed at most 30 s later, or after this time again if that is less.",  # CM-194
    low=1_000, high=86_400_000, unit="ms",
)  # fmt: skip
CONNECTIONS_MAX = integer(
    "max.connections", 0,
    "Connections of clients; further ones are closed as soon as they are made. 0: three quarters of "  # CM-203
    "the files that the process may have open: ulimit -Hn, at most 65,536.", low=0, high=2_147_483_647,
)  # fmt: skip
CALLS_MAX = integer(
    "rpc.concurrent.calls.max", 20_000,
    "Calls and streams served at the same time; one user may have three for each that is left to others.",  # CM-202
    low=1,
)  # fmt: skip
METRICS_HOST = string("metrics.host", "127.0.0.1", "Address of the metrics endpoint.")
METRICS_PORT = integer("metrics.port", -1, "Port of the metrics endpoint; 0 for any free one, -1 for none.",
                       low=-1, high=65_535)  # fmt: skip
# PL-956
PROGRESS_INTERVAL_MS = integer(
    "metrics.progress.interval.ms", 10_000,
    "How often a leader computes how far groups are, and asks share coordinators about those that do not fetch here.",
    low=100, high=600_000, unit="ms",
)  # fmt: skip
PROGRESS_BY_PARTITION = boolean(
    "metrics.by.partition", False,
    "Whether the series of groups' progress have a label for the partition; else each is the sum over a topic.",
)  # fmt: skip
PROGRESS_ROWS_MAX = integer(
    "metrics.progress.rows.max", 10_000,
    "Groups and topics, or partitions of them, whose progress has series; those with the largest lag.",
    low=0, high=1_000_000,
)  # fmt: skip
LOG_LEVEL = string("log.level", "info", "Least level that is logged.", choices=("debug", "info", "warning", "error"))
LOG_FORMAT = string("log.format", "auto", "json, text (or console), or auto: json when not a terminal.", choices=FORMS)

_OWN_SETTINGS: Final = [
    value for name, value in list(globals().items()) if isinstance(value, Setting) and name.isupper()
]
NODE_SETTINGS: Final = table([*_OWN_SETTINGS, *STORE_SETTINGS.values()])


class SettingsError(Exception):
    """The settings cannot be used; the message has one line per fault: the setting, the reason, the values accepted."""


class Settings(Mapping[str, object]):
    """Frozen settings of a process. `settings[LISTEN_PORT]` is typed; a name as key returns `object`."""

    def __init__(self, declared: SettingTable, given: Mapping[str, object]) -> None:
        self.declared: Mapping[str, AnySetting] = MappingProxyType(declared)
        self._given = dict(given)

    def __getitem__(self, key: Setting[T] | str) -> T:
        setting = self.declared[key] if isinstance(key, str) else key
        return cast(T, self._given.get(setting.name, setting.default))

    def __iter__(self) -> Any:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)

    def given(self, name: str) -> bool:
        """Return whether the setting was given, not left at its default."""
        return name in self._given

    def text(self, name: str) -> str:
        """Return a setting's value as text, as in a settings file."""
        setting = cast(Setting[object], self.declared[name])
        return setting.text(self[name])

    def __repr__(self) -> str:
        shown = {name: "…" if self.declared[name].sensitive else value for name, value in sorted(self._given.items())}
        return f"Settings({shown})"


def load_settings(
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    *,
    extra: Iterable[SettingTable] = (),
    ignore_variables: Iterable[str] = (),
) -> Settings:
    """Read and check the settings. `extra`: tables that a service declares for itself. Raises SettingsError.

    The file is `file`, else the one that the variable SHAREGROUPS_CONFIG names, else none.
    """
    declared: SettingTable = {**NODE_SETTINGS, **BROKER_CONFIGS}
    for more in extra:
        declared.update(more)
    environ = environ or {}
    path = file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    faults: list[str] = []
    texts: dict[str, tuple[str, str]] = {}
    if path is not None:
        texts.update(_from_file(path, declared, faults))
    texts.update(_from_environment(environ, declared, {FILE_VARIABLE, CLIENT_VARIABLE, *ignore_variables}, faults))
    for name, text in (flags or {}).items():
        if name in declared:
            texts[name] = (text, "flag")
        else:
            faults.append(_unknown(name, name, declared))
    values: dict[str, object] = {}
    for name, (text, where) in texts.items():
        try:
            values[name] = declared[name].given(text)
        except ValueError as error:
            faults.append(f"{error} (from {where})")
    settings = Settings(declared, values)
    faults += check(settings) if not faults else []
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def _from_file(path: Path, declared: SettingTable, faults: list[str]) -> dict[str, tuple[str, str]]:
    try:
        texts = settings_in(path)
    except ValueError as error:
        faults.append(str(error))
        return {}
    found = {}
    for name, text in texts.items():
        if name in declared:
            found[name] = (text, f"file {path}")
        else:
            faults.append(_unknown(f"{name} in {path}", name, declared))
    return found


def _from_environment(
    environ: Mapping[str, str], declared: SettingTable, ignored: set[str], faults: list[str]
) -> dict[str, tuple[str, str]]:
    by_variable = {setting.environment: name for name, setting in declared.items()}
    found = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in ignored:
            continue
        if variable in by_variable:
            found[by_variable[variable]] = (text, f"environment variable {variable}")
        else:
            faults.append(_unknown(f"environment variable {variable}", variable, by_variable))
    return found


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    for kind, configs in (("topic", kafka_configs.TOPIC_CONFIGS), ("group", kafka_configs.GROUP_CONFIGS)):
        if name in configs:
            default = f"; the default of all is {configs[name].synonym}" if configs[name].synonym else ""
            return (
                f"Unknown setting: {what}. It is a config of one {kind}: `sharegroups configs alter --{kind} NAME "
                f"--add-config {name}=VALUE`{default}."
            )
    return f"Unknown setting: {what}." + (
        store_hint(name, known) or " All settings are listed in docs/reference/settings.md."
    )


_ORDERED: Final = (  # GC-140, PL-1001: least ≤ value ≤ greatest
    (
        kafka_configs.MIN_HEARTBEAT_INTERVAL_MS,
        kafka_configs.HEARTBEAT_INTERVAL_MS,
        kafka_configs.MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (kafka_configs.MIN_SESSION_TIMEOUT_MS, kafka_configs.SESSION_TIMEOUT_MS, kafka_configs.MAX_SESSION_TIMEOUT_MS),
    (
        kafka_configs.MIN_ASSIGNMENT_INTERVAL_MS,
        kafka_configs.ASSIGNMENT_INTERVAL_MS,
        kafka_configs.MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (kafka_configs.MIN_LOCK_DURATION_MS, kafka_configs.LOCK_DURATION_MS, kafka_configs.MAX_LOCK_DURATION_MS),
    (
        kafka_configs.MIN_DELIVERY_COUNT_LIMIT,
        kafka_configs.DELIVERY_COUNT_LIMIT,
        kafka_configs.MAX_DELIVERY_COUNT_LIMIT,
    ),
    (kafka_configs.MIN_MAX_RECORD_LOCKS, kafka_configs.MAX_RECORD_LOCKS, kafka_configs.MAX_MAX_RECORD_LOCKS),
)


def check(settings: Settings) -> list[str]:
    """Check the settings together (GC-140…GC-143, PL-1001). Returns one line per fault, with key, value and bound."""
    faults = []
    for least, value, greatest in _ORDERED:
        low, found, high = settings[least], settings[value], settings[greatest]
        if not low <= found <= high:
            faults.append(f"{value.name}={found} must be between {least.name}={low} and {greatest.name}={high}")
    heartbeat, session = kafka_configs.HEARTBEAT_INTERVAL_MS, kafka_configs.SESSION_TIMEOUT_MS
    if settings[heartbeat] >= settings[session]:
        faults.append(f"{heartbeat.name}={settings[heartbeat]} must be less than {session.name}={settings[session]}")
    if len(settings[kafka_configs.ASSIGNORS]) != 1:
        faults.append(f"{kafka_configs.ASSIGNORS.name} must name exactly one assignor: simple, shared, or module:Class")
    if settings[kafka_configs.MAX_SHARE_SESSIONS] < settings[kafka_configs.GROUP_MAX_SIZE]:
        faults.append(
            f"{kafka_configs.MAX_SHARE_SESSIONS.name}={settings[kafka_configs.MAX_SHARE_SESSIONS]} must be at least "
            f"{kafka_configs.GROUP_MAX_SIZE.name}={settings[kafka_configs.GROUP_MAX_SIZE]}"
        )
    files = (SSL_CERTIFICATE, SSL_KEY, SSL_CA)
    if any(settings[each] for each in files) and not all(settings[each] for each in files):
        missing = ", ".join(each.name for each in files if not settings[each])
        faults.append(f"TLS needs {', '.join(each.name for each in files)}; missing: {missing}")
    if settings[SSL_CLIENT_AUTH] == "required" and not settings[SSL_CA]:
        faults.append(f"{SSL_CLIENT_AUTH.name}=required needs TLS: set {', '.join(each.name for each in files)}")
    for each in (JWKS_REFRESH_MS, TOKEN_AUDIENCES, TOKEN_ISSUER, TOKEN_NAME_CLAIM, TOKEN_SKEW_S):
        if settings.given(each.name) and not settings[JWKS_URL]:
            faults.append(f"{each.name} has no effect without {JWKS_URL.name}: set that, too")
    if settings[RENEW_INTERVAL_MS] * 2 > settings[LEASE_MS]:
        faults.append(
            f"{RENEW_INTERVAL_MS.name}={settings[RENEW_INTERVAL_MS]} must be at most half of "
            f"{LEASE_MS.name}={settings[LEASE_MS]}"
        )
    return faults
