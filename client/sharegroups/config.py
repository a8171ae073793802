"""The settings of the consumer, producer and admin client, each declared once: name, default, range, unit and a
sentence of documentation.

Rules CL-39, CL-40 and CL-45 (values are checked strictly; unknown names are refused with the nearest known one).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kip932.compression.kinds import Compression
from kip932.ids import BATCH_RECORDS_MAX
from kip932.nearest_name import did_you_mean
from kip932.setting import ConfigType, Setting, boolean, function, integer, string
from sharegroups import arguments
from sharegroups.errors import ConfigError, InvalidGroupIdError
from sharegroups.packing import check_packing

_INT32_MAX: Final = 2**31 - 1

_GROUP_CONFIG: Final = "it is a config of the group: sharegroups configs alter --group GROUP --add-config "
_IMPLICIT: Final = (
    "share.acknowledgement.mode=implicit accepts at the next poll what the last one returned, explicit lets the "
    "program acknowledge each record"
)

#: Settings for ordinary consumer groups, which a share consumer refuses (CL-40), and what replaces each.
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": _GROUP_CONFIG + "share.auto.offset.reset=earliest",
    "enable.auto.commit": _IMPLICIT,
    "group.instance.id": "members are not static: a member that has gone leaves its records to the others at once",
    "isolation.level": _GROUP_CONFIG + "share.isolation.level=read_committed",
    "partition.assignment.strategy": "members share partitions, and the group coordinator assigns them",
    "interceptor.classes": "there are no interceptors; change messages where the program polls",
    "session.timeout.ms": _GROUP_CONFIG + "share.session.timeout.ms=45000",
    "heartbeat.interval.ms": _GROUP_CONFIG + "share.heartbeat.interval.ms=5000",
    "group.protocol": "a share consumer knows the protocol of share groups only",
    "group.remote.assignor": "members share partitions, and the group coordinator assigns them",
}

_NO_TUNING: Final = "gRPC manages connections and their buffers itself; leave it out"
_NO_STATISTICS: Final = "call metrics() of the client"
_LOGGING: Final = "errors are raised, or given to the callbacks of the call; a worker uses Python's logging"
_TOKEN: Final = (
    "a client shows who it is with sasl.oauthbearer.token, with sasl.username and sasl.password, or with "
    "ssl.certificate.location and ssl.key.location"
)
_TRUST: Final = "give a PEM file as ssl.ca.location"
_KEYS: Final = "give PEM files as ssl.certificate.location and ssl.key.location"
_RETRIES: Final = "a record is tried again until delivery.timeout.ms is over"
_LINGER: Final = "batches fill while an earlier request is under way, and wait for nothing else; leave it out"
#: Settings of Kafka's own clients that these clients do not have, and what replaces each.
ELSEWHERE: Final[Mapping[str, str]] = {
    "allow.auto.create.topics": "topics are created with sharegroups topics create, or Admin.create_topics",
    "auto.commit.interval.ms": _IMPLICIT,
    "client.dns.lookup": _NO_TUNING,
    "compression.codec": "the name here is compression.type",
    "connections.max.idle.ms": _NO_TUNING,
    "debug": _LOGGING,
    "dr_cb": "give on_delivery to produce()",
    "enable.auto.offset.store": _IMPLICIT,
    "enable.metrics.push": _NO_STATISTICS,
    "enable.partition.eof": "a poll without records returns no messages",
    "error_cb": _LOGGING,
    "exclude.internal.topics": "there are no internal topics; leave it out",
    "fetch.message.max.bytes": "the name here is fetch.max.bytes",
    "fetch.wait.max.ms": "the name here is fetch.max.wait.ms",
    "linger.ms": _LINGER,
    "log_level": _LOGGING,
    "logger": _LOGGING,
    "max.in.flight.requests.per.connection": "the producer keeps the order of each partition itself; leave it out",
    "message.max.bytes": "the name here is max.request.size",
    "message.send.max.retries": _RETRIES,
    "message.timeout.ms": "the name here is delivery.timeout.ms",
    "metadata.broker.list": "the name here is bootstrap.servers",
    "metadata.max.idle.ms": "metadata.max.age.ms says when metadata is fetched again",
    "metric.reporters": _NO_STATISTICS,
    "metrics.num.samples": _NO_STATISTICS,
    "metrics.recording.level": _NO_STATISTICS,
    "metrics.sample.window.ms": _NO_STATISTICS,
    "on_commit": "give set_acknowledgement_commit_callback() a function",
    "on_delivery": "give on_delivery to produce()",
    "partitioner.adaptive.partitioning.enable": "partitioner chooses how partitions are drawn",
    "partitioner.class": "partitioner is default or random; or give produce() a partition",
    "partitioner.ignore.keys": "partitioner=random ignores keys",
    "queue.buffering.max.kbytes": "the name here is buffer.memory, in bytes",
    "queue.buffering.max.messages": "buffer.memory bounds what waits, in bytes",
    "queue.buffering.max.ms": _LINGER,
    "queued.max.messages.kbytes": "fetch.max.bytes bounds one answer",
    "queued.min.messages": "share.acquire.mode says how much is fetched ahead",
    "receive.buffer.bytes": _NO_TUNING,
    "reconnect.backoff.max.ms": _NO_TUNING,
    "reconnect.backoff.ms": _NO_TUNING,
    "request.required.acks": "the name here is acks",
    "retries": _RETRIES,
    "sasl.jaas.config": _TOKEN,
    "sasl.kerberos.service.name": _TOKEN,
    "sasl.mechanism": _TOKEN,
    "sasl.mechanisms": _TOKEN,
    "send.buffer.bytes": _NO_TUNING,
    "socket.connection.setup.timeout.max.ms": _NO_TUNING,
    "socket.connection.setup.timeout.ms": _NO_TUNING,
    "socket.keepalive.enable": _NO_TUNING,
    "socket.timeout.ms": "the name here is request.timeout.ms",
    "ssl.endpoint.identification.algorithm": "the name in the certificate is always checked; leave it out",
    "ssl.key.password": "give ssl.key.location a file without a password",
    "ssl.keystore.location": _KEYS,
    "ssl.keystore.password": _KEYS,
    "ssl.keystore.type": _KEYS,
    "ssl.truststore.location": _TRUST,
    "ssl.truststore.password": _TRUST,
    "ssl.truststore.type": _TRUST,
    "statistics.interval.ms": _NO_STATISTICS,
    "stats_cb": _NO_STATISTICS,
    "topic.metadata.refresh.interval.ms": "the name here is metadata.max.age.ms",
    "transaction.two.phase.commit.enable": "transactions end with commit_transaction or abort_transaction alone",
}


#: The permitted values of a boolean, for the reference page.
_TRUTH: Final = ("true", "false")

COMMON: Final[tuple[Setting[Any], ...]] = (
    string("bootstrap.servers", "", "Comma list of host:port of any nodes of the cluster."),
    string("client.id", "", "Name of this client in the services' logs and descriptions; empty for none."),
    integer("retry.backoff.ms", 100, "First delay before a retry, in ms.", low=1),  # CL-14
    integer("retry.backoff.max.ms", 1000, "Longest delay before a retry, in ms.", low=1),  # CL-14
    integer("request.timeout.ms", 30_000, "How long one request may take, in ms.", low=1),
    integer("default.api.timeout.ms", 60_000, "How long a blocking call may take by default, in ms.", low=1),
    string(
        "security.protocol",
        "PLAINTEXT",
        "PLAINTEXT, or SSL for TLS; with ssl.certificate.location mutual TLS.",
        choices=("PLAINTEXT", "SSL"),
    ),
    string("ssl.ca.location", "", "File with the certificates to trust; the system's when empty."),
    string("ssl.certificate.location", "", "File with this client's certificate."),
    string("ssl.key.location", "", "File with this client's private key."),
    string(
        "sasl.oauthbearer.token",
        "",
        "Bearer token sent with every call; without TLS to this machine only (sasl.oauthbearer.allow.plaintext). In "
        "Python also a function without arguments that returns the newest one.",
        sensitive=True,
    ),
    boolean(
        "sasl.oauthbearer.allow.plaintext",
        False,
        "Send the token or password without TLS to other machines too.",
        choices=_TRUTH,
    ),
    string("sasl.oauthbearer.token.location", "", "File with the bearer token; read again when it has changed."),
    string("sasl.username", "", "Name of this client's user, for nodes that take passwords."),
    string("sasl.password", "", "Password of that user; sent as the token is.", sensitive=True),
    string("sasl.password.location", "", "File with the password; read again when it has changed."),
    integer("metadata.max.age.ms", 300_000, "Metadata older than this are fetched again, in ms.", low=1),
    boolean(
        "opentelemetry.enable",
        True,
        "Use OpenTelemetry where the program has set it up: spans, metrics, and trace contexts in records' headers. "
        "The admin client makes none.",
        choices=_TRUTH,
    ),
)

CONSUMER: Final[tuple[Setting[Any], ...]] = (
    *COMMON,
    string("group.id", "", "The share group; required."),
    string(
        "share.acknowledgement.mode",
        "implicit",
        "implicit: the next poll accepts what the previous returned; explicit: each record is acknowledged.",
        choices=("implicit", "explicit"),
    ),
    string(
        "share.acquire.mode",
        "adaptive",
        "adaptive: as many records as the application processes in 2 s, from 1 up to max.poll.records; "  # CL-85
        "record_limit: up to max.poll.records, and none are fetched ahead; batch_optimized, Kafka's default: whole "
        "batches, at times more than max.poll.records, fetched ahead from several leaders.",
        choices=("adaptive", "record_limit", "batch_optimized"),
    ),
    integer(
        "max.poll.records",
        500,
        "Records that one poll aims at; 1 is right for jobs of a second or more. With 500 or more, a program that is "
        "quick with full polls gets up to 2,000 with one request, for its next polls.",  # CL-136
        low=1,
    ),
    integer("max.poll.interval.ms", 300_000, "The member leaves after so long without a poll, in ms.", low=1),  # CL-7
    integer("fetch.min.bytes", 1, "Bytes that a leader waits for before it answers.", low=0),
    integer("fetch.max.bytes", 52_428_800, "Bytes wanted in one answer.", low=0),
    integer("fetch.max.wait.ms", 500, "How long a leader waits for fetch.min.bytes, in ms.", low=0),
    integer("max.partition.fetch.bytes", 1_048_576, "Accepted for compatibility; not sent.", low=0),
    boolean("check.crcs", True, "Accepted for compatibility; the transport checks integrity.", choices=_TRUTH),
    string("client.rack", "", "Rack of this client."),
    function("key.deserializer", "Function from bytes to the key that messages hold."),
    function("value.deserializer", "Function from bytes to the value that messages hold."),
)

PRODUCER: Final[tuple[Setting[Any], ...]] = (
    *COMMON,
    string(
        "acks",
        "all",
        "all: min.insync.replicas store replicas have it; 1: the store has it.",
        choices=("all", "-1", "1"),
    ),
    boolean("enable.idempotence", True, "Number batches so that a retry is stored once.", choices=_TRUTH),  # CM-43
    integer("buffer.memory", 33_554_432, "Bytes of records that may wait for delivery.", low=1),
    integer("max.block.ms", 60_000, "How long produce() waits for metadata, and for room in the buffer, in ms.", low=0),
    integer("batch.size", 262_144, "Bytes of records in one batch, about; a larger record is a batch alone.", low=1),
    integer("batch.num.records", 500, "Records in one batch at most.", low=1, high=BATCH_RECORDS_MAX),
    integer("max.request.size", 1_048_576, "Largest record, in bytes.", low=1),
    integer("delivery.timeout.ms", 120_000, "How long a record may wait for its delivery, in ms.", low=1),
    string(
        "compression.type",
        "none",
        "Compression of batches. snappy, lz4 and zstd need a library each, which the extra of that name brings.",
        choices=tuple(kind.label for kind in Compression),
    ),
    integer(
        "compression.gzip.level",
        -1,
        "Level of gzip: 1, fast, to 9, small; -1 for zlib's default, 6. Refused with another compression.type.",
        low=-1,
        high=9,
    ),
    integer(
        "compression.lz4.level",
        9,
        "Level of lz4, as in Kafka: 9 is its fast mode, and so are 1 and 2; the others are slower and pack tighter, up "
        "to 12, as which those above count. Refused with another compression.type.",
        low=1,
        high=17,
    ),
    integer(
        "compression.zstd.level",
        3,
        "Level of zstd: 1, fast, to 22, small; below 0 faster still. Refused with another compression.type.",
        low=-131_072,
        high=22,
    ),
    string(
        "partitioner",
        "default",
        "default: hash of the key, without key one partition per batch in turn; random ignores keys.",
        choices=("default", "random"),
    ),
    string(
        "transactional.id",
        "",
        "Name under which transactions are fenced; one producer at a time uses it. Empty for none.",  # CM-44
    ),
    integer(
        "transaction.timeout.ms",
        60_000,
        "A transaction that is open for longer is aborted, in ms; at most the cluster's transaction.max.timeout.ms.",
        low=1,
    ),
    function("key.serializer", "Function from a key to bytes."),
    function("value.serializer", "Function from a value to bytes."),
)

ADMIN: Final = COMMON

_TOKEN_SETTING: Final = "sasl.oauthbearer.token"


class Config:
    """Checked values by setting name: `config["max.poll.records"]`."""

    __slots__ = ("_values",)

    def __init__(self, settings: tuple[Setting[Any], ...], given: Mapping[str, Any]) -> None:
        known = {setting.name: setting for setting in settings}
        for name in given:
            if name not in known:
                raise ConfigError(_unknown(name, known))
        self._values: dict[str, Any] = {
            name: _value(setting, given[name]) if given.get(name) is not None else setting.default
            for name, setting in known.items()
        }
        if self["retry.backoff.max.ms"] < self["retry.backoff.ms"]:
            raise ConfigError(
                f"retry.backoff.max.ms is {self['retry.backoff.max.ms']}; expected at least retry.backoff.ms, "
                f"which is {self['retry.backoff.ms']}"
            )

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def renews_credentials(self) -> bool:
        """Whether this client's token or password may change while it runs (CL-158)."""
        files = any(self[name] for name in ("sasl.oauthbearer.token.location", "sasl.password.location"))
        return files or callable(self[_TOKEN_SETTING])

    def check_bootstrap(self) -> None:
        """Raise ConfigError if a bootstrap address is missing or invalid."""
        _ = self.bootstrap

    @property
    def bootstrap(self) -> list[str]:
        """The bootstrap addresses. Raises ConfigError when there is none or one is not host:port."""
        text = self["bootstrap.servers"] or ""
        addresses = [part.strip() for part in text.split(",") if part.strip()]
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(f"bootstrap.servers holds {address!r}; expected host:port")
        if not addresses:
            raise ConfigError("bootstrap.servers is missing; expected host:port of at least one node of the cluster")
        return addresses


def _value(setting: Setting[Any], value: Any) -> Any:
    """Return the value in the setting's type. Raises ConfigError, which names the given and the expected value."""
    if callable(value) and (setting.type is ConfigType.CLASS or setting.name == _TOKEN_SETTING):
        return value
    if isinstance(value, str | int) and (setting.type is ConfigType.BOOLEAN or not isinstance(value, bool)):
        with suppress(ValueError):
            return setting.parse(value if isinstance(value, str) else setting.text(value))
    raise ConfigError(f"{setting.name} is {value!r}; expected {_expected(setting, value)}")


def _expected(setting: Setting[Any], value: Any) -> str:
    if setting.type is ConfigType.INT:
        return f"a whole number from {setting.low} to {_INT32_MAX if setting.high is None else setting.high}"
    if setting.type is ConfigType.BOOLEAN:
        return "true or false"
    if setting.type is ConfigType.CLASS:
        return "a function of one argument, or None"
    if setting.name == _TOKEN_SETTING:
        return "text, or a function without arguments that returns it"
    if isinstance(value, str | int):
        return f"one of {', '.join(setting.choices)}" if setting.choices else "text"
    several = isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value)
    return f"text, {', '.join(value)!r}" if several else "text"


def given_settings(
    settings: Mapping[str, Any] | None, keywords: Mapping[str, Any], client: str = "Admin"
) -> dict[str, Any]:
    """Return settings from a dict, from keyword arguments with `_` for `.`, or from both, as one dict (CL-44).

    `client` is the class named in errors. Raises ConfigError for anything else, such as a bare address.
    """
    try:
        given = arguments.settings(client, settings)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return given | {name.replace("_", "."): value for name, value in keywords.items()}


def consumer_config(settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Config:
    """Return a share consumer's settings. Raises ConfigError, or InvalidGroupIdError without a group (CL-20, CL-40)."""
    given = given_settings(settings, keywords, "ShareConsumer")
    for name in given:
        if name in REFUSED:
            raise ConfigError(f"{name} cannot be set when using a share group. Instead: {REFUSED[name]}.")
    config = Config(CONSUMER, given)
    if not (config["group.id"] or "").strip():
        raise InvalidGroupIdError(
            f"group.id is {given.get('group.id')!r}; a share consumer needs the name of its group"
        )
    if not config["fetch.min.bytes"] <= config["fetch.max.bytes"]:
        raise ConfigError(f"fetch.min.bytes is {config['fetch.min.bytes']}; expected at most fetch.max.bytes")
    return config


def producer_config(settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Config:
    """Return a producer's settings. Raises ConfigError, also for a compression that is not available here (CL-112)."""
    given = given_settings(settings, keywords, "Producer")
    config = Config(PRODUCER, given)
    check_packing(config, {name for name, value in given.items() if value is not None})
    return config


def _unknown(name: str, known: Mapping[str, Setting[Any]]) -> str:
    instead = ELSEWHERE.get(name) or REFUSED.get(name)
    if instead is not None:
        return f"the setting {name} of Kafka's clients does not exist here. Instead: {instead}."
    for client, settings in (("a producer", PRODUCER), ("a share consumer", CONSUMER)):
        if any(setting.name == name for setting in settings):
            return f"{name} is a setting of {client}, and this client has none of that name; leave it out here"
    hint = did_you_mean(name, known)
    return f"unknown setting {name!r}" + (hint and f".{hint}")
