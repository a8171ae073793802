"""The services between nodes, and where they listen (CM-80): at an address of their own, which clients do not get. What
both listeners have in common: their checks and their certificates (CM-60)."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from kip932.acls import ANONYMOUS
from kip932.principal_rules import parse_rules
from kip932.rpc.loopback import is_loopback
from kip932.secret_files import readable_by_all
from kip932.setting import Setting
from shard_runtime.config.kafka_configs import ACCESS_CONTROL, SUPER_USERS, super_users
from shard_runtime.config.process_settings import (
    ADVERTISED_HOST,
    ADVERTISED_PORT,
    EXTERNAL_ADVERTISED_ADDRESS,
    EXTERNAL_LISTEN_PORT,
    HEALTH_LISTEN_PORT,
    INTERNAL_ADVERTISED_HOST,
    INTERNAL_ADVERTISED_PORT,
    INTERNAL_LISTEN_HOST,
    INTERNAL_LISTEN_PORT,
    JWKS_REFRESH_MS,
    JWKS_URL,
    KAFKA_ADVERTISED_ADDRESS,
    KAFKA_EXTERNAL_ADVERTISED_ADDRESS,
    KAFKA_EXTERNAL_LISTEN_PORT,
    KAFKA_LISTEN_PORT,
    LISTEN_HOST,
    LISTEN_PORT,
    METRICS_PORT,
    PRINCIPAL_RULES,
    SSL_CA,
    SSL_CERTIFICATE,
    SSL_CLIENT_AUTH,
    SSL_KEY,
    STATIC_TOKENS,
    TOKEN_AUDIENCES,
    TOKEN_ISSUER,
    TOKEN_NAME_CLAIM,
    TOKEN_SKEW_S,
    Settings,
    advertised,
    url_path,
)
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.certificates import CertificateError, CertificateFiles, NodeCertificates, read_certificates
from shard_runtime.rpc.server import ListenError
from shard_runtime.rpc.token_sources import RETRY_MAX_S, RETRY_S, Source, file_reader, https_reader
from shard_runtime.rpc.tokens import ContentsError, KeySet, Policy, parse_keys, parse_static_tokens

log = structlog.get_logger(__name__)

_EXTERNAL: Final = (EXTERNAL_LISTEN_PORT, KAFKA_EXTERNAL_LISTEN_PORT)


class LeaderForNodes:
    """The RPCs of a partition leader that nodes call: its logs' ends (GC-115), markers of transactions (CM-155), and
    dead letters for its topics (PL-912)."""

    def __init__(self, leader: Any, markers: Any) -> None:
        self.list_offsets: Final[Callable[..., Awaitable[Any]]] = leader.list_offsets
        self.write_txn_markers: Final[Callable[..., Awaitable[Any]]] = markers.write_txn_markers
        self.produce: Final[Callable[..., Awaitable[Any]]] = leader.produce


def internal_host(settings: Settings) -> str:
    """Return the host on which services between nodes listen."""
    return settings[INTERNAL_LISTEN_HOST] or settings[LISTEN_HOST]


def client_address(settings: Settings, port: int) -> str:
    """The `host:port` at which clients reach this process, which listens on `port`."""
    return f"{settings[ADVERTISED_HOST] or settings[LISTEN_HOST]}:{settings[ADVERTISED_PORT] or port}"


def kafka_address(settings: Settings, port: int) -> str:
    """The `host:port` at which Kafka's clients reach this process, whose Kafka listener has `port`."""
    given = settings[KAFKA_ADVERTISED_ADDRESS]
    host, given_port = advertised(given) if given else (settings[ADVERTISED_HOST] or settings[LISTEN_HOST], 0)
    return f"{host}:{given_port or port}"


def external_address(settings: Settings, port: int) -> str:
    """The `host:port` at which clients from elsewhere reach this process, which listens for them on `port`."""
    given = settings[EXTERNAL_ADVERTISED_ADDRESS]
    host, given_port = advertised(given) if given else (settings[ADVERTISED_HOST] or settings[LISTEN_HOST], 0)
    return f"{host}:{given_port or port}"


def kafka_external_address(settings: Settings, port: int) -> str:
    """The same for Kafka's clients from elsewhere."""
    given = settings[KAFKA_EXTERNAL_ADVERTISED_ADDRESS]
    host, given_port = advertised(given) if given else (external_address(settings, port).rpartition(":")[0], 0)
    return f"{host}:{given_port or port}"


def internal_address(settings: Settings, port: int) -> str:
    """The `host:port` at which other nodes reach this process, whose internal listener has `port`."""
    host = settings[_internal_host_setting(settings)]
    return f"{host}:{settings[INTERNAL_ADVERTISED_PORT] or port}"


def _internal_host_setting(settings: Settings) -> Setting[str]:
    """The setting whose host other nodes use for this process."""
    if settings[INTERNAL_ADVERTISED_HOST]:
        return INTERNAL_ADVERTISED_HOST
    if settings[INTERNAL_LISTEN_HOST] and not is_unspecified(settings[INTERNAL_LISTEN_HOST]):
        return INTERNAL_LISTEN_HOST
    return ADVERTISED_HOST if settings[ADVERTISED_HOST] else LISTEN_HOST


def is_unspecified(host: str) -> bool:
    """Return whether this is 0.0.0.0 or ::, which mean all addresses of a machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def refuse_uncallable(settings: Settings) -> None:
    """Raise ListenError, which names the setting, for an advertised address such as 0.0.0.0, at which clients and nodes
    would call themselves (CM-1), and when listeners have the same port."""
    setting = ADVERTISED_HOST if settings[ADVERTISED_HOST] else LISTEN_HOST
    if is_unspecified(settings[setting]):
        raise ListenError(
            f"{setting.name} is {settings[setting]}, and clients and other nodes would call this node there; "
            f"expected a name or address that they reach it by. Try {ADVERTISED_HOST.name}=NAME, or the variable "
            f"{ADVERTISED_HOST.environment}; 127.0.0.1 when they all run on this machine."
        )
    setting = _internal_host_setting(settings)
    if is_unspecified(settings[setting]):
        raise ListenError(
            f"{setting.name} is {settings[setting]}, and other nodes would call this node there; expected a name "
            f"or address that they reach it by. Try {INTERNAL_ADVERTISED_HOST.name}=NAME."
        )
    if settings[LISTEN_PORT] and settings[LISTEN_PORT] == settings[INTERNAL_LISTEN_PORT]:
        raise ListenError(
            f"{LISTEN_PORT.name} and {INTERNAL_LISTEN_PORT.name} are both {settings[LISTEN_PORT]}; services between "
            f"nodes need a port of their own that clients cannot reach. Try {INTERNAL_LISTEN_PORT.name}="
            f"{settings[LISTEN_PORT] % 65_535 + 1}, or 0 for any free one."
        )
    for text, who in (
        (KAFKA_ADVERTISED_ADDRESS, "Kafka's clients"),
        (EXTERNAL_ADVERTISED_ADDRESS, "clients from elsewhere"),
        (KAFKA_EXTERNAL_ADVERTISED_ADDRESS, "Kafka's clients from elsewhere"),
    ):
        given = settings[text]
        if given and is_unspecified(advertised(given)[0]):
            raise ListenError(
                f"{text.name} is {given}, and {who} would call this node there; expected a name or address that they "
                f"reach it by. Try {text.name}=NAME:PORT."
            )
    _refuse_shared_ports(settings)
    health = settings[HEALTH_LISTEN_PORT]
    for each in (LISTEN_PORT, INTERNAL_LISTEN_PORT, METRICS_PORT, KAFKA_LISTEN_PORT, *_EXTERNAL):
        if health > 0 and health == settings[each]:
            raise ListenError(
                f"{HEALTH_LISTEN_PORT.name} and {each.name} are both {health}; expected a port of its own for health. "
                f"Try {HEALTH_LISTEN_PORT.name}=0 for any free one, or -1 for none."
            )


def _refuse_shared_ports(settings: Settings) -> None:
    for each in (LISTEN_PORT, INTERNAL_LISTEN_PORT, METRICS_PORT):
        if settings[KAFKA_LISTEN_PORT] > 0 and settings[KAFKA_LISTEN_PORT] == settings[each]:
            raise ListenError(
                f"{KAFKA_LISTEN_PORT.name} and {each.name} are both {settings[each]}; expected a port of its own for "
                f"Kafka's clients. Try {KAFKA_LISTEN_PORT.name}=9092, 0 for any free one, or -1 for none."
            )
    others = [LISTEN_PORT, INTERNAL_LISTEN_PORT, METRICS_PORT, KAFKA_LISTEN_PORT]
    for mine in (EXTERNAL_LISTEN_PORT, KAFKA_EXTERNAL_LISTEN_PORT):
        for other in others:
            if settings[mine] > 0 and settings[mine] == settings[other]:
                raise ListenError(
                    f"{mine.name} and {other.name} are both {settings[mine]}; expected a port of its own for clients "
                    f"from elsewhere. Try {mine.name}=0 for any free one, or -1 for none."
                )
        others.append(mine)


def node_certificates(settings: Settings) -> NodeCertificates | None:
    """Return the certificates that the settings name; None without TLS. Raises ListenError."""
    files = _certificate_files(settings)
    if files is None:
        return None
    called = {settings[ADVERTISED_HOST] or settings[LISTEN_HOST], settings[_internal_host_setting(settings)]}
    for port, text in zip(_EXTERNAL, (EXTERNAL_ADVERTISED_ADDRESS, KAFKA_EXTERNAL_ADVERTISED_ADDRESS), strict=True):
        if settings[port] >= 0 and settings[text]:
            called.add(advertised(settings[text])[0])
    with _explained():
        return NodeCertificates(files, hosts=sorted(host for host in called if not is_unspecified(host)))


def warn_of_readable_secrets(settings: Settings, *names: Setting[str]) -> None:
    """Log a warning for each of these settings that names a file with a secret that everyone can read (CM-204)."""
    for setting in names:
        path = settings[setting]
        if path and (cause := readable_by_all(path)):
            log.warning(
                "secret_readable_by_all",
                setting=setting.name,
                cause=cause,
                effect="anyone who reads it can call the cluster or its store as this node",
                try_next=f"chmod o= {path}",
            )


def node_authentication(settings: Settings) -> Authentication:
    """Return the object that determines who calls at the port for clients. Raises ListenError for files of keys or
    tokens that cannot be used (CM-186)."""
    made: Authentication | None = None

    def changed() -> None:
        if made is not None:
            made.changed()

    keys, static = _key_set(settings, changed), _static_tokens(settings, changed)
    policy = Policy(
        settings[TOKEN_AUDIENCES], settings[TOKEN_ISSUER], settings[TOKEN_NAME_CLAIM], settings[TOKEN_SKEW_S]
    )
    made = Authentication(keys=keys, static=static, policy=policy, rules=parse_rules(settings[PRINCIPAL_RULES]))
    if keys is not None and not policy.audiences:
        log.warning(
            "tokens_for_any_audience",
            cause=f"{TOKEN_AUDIENCES.name} is empty",
            effect="a token that its issuer made for another service is accepted here, too",
            try_next=f"set {TOKEN_AUDIENCES.name}",
        )
    return made


def _key_set(settings: Settings, changed: Callable[[], None]) -> Source[KeySet] | None:
    url = settings[JWKS_URL]
    if not url:
        return None
    path = url_path(url)

    def parse(contents: bytes, mode: int) -> KeySet:
        return parse_keys(contents)

    if path is None:
        every_s = settings[JWKS_REFRESH_MS] / 1000
        return Source(
            "keys", url, https_reader(url), parse, changed, every_s=every_s, retry_s=RETRY_S, retry_max_s=RETRY_MAX_S
        )
    return _loaded(JWKS_URL, Source("keys", str(path), file_reader(path), parse, changed))


def _static_tokens(settings: Settings, changed: Callable[[], None]) -> Source[dict[bytes, str]] | None:
    path = settings[STATIC_TOKENS]
    if not path:
        return None

    return _loaded(STATIC_TOKENS, Source("tokens", path, file_reader(Path(path)), parse_static_tokens, changed))


def _loaded(setting: Setting[str], source: Source[Any]) -> Source[Any]:
    try:
        source.load()
    except ContentsError as error:
        raise ListenError(f"{setting.name} is {source.where}, which cannot be used: {error}") from error
    return source


def node_access(
    settings: Settings, certificates: NodeCertificates | None, authentication: Authentication | None = None
) -> Access | None:
    """Return the access control that the settings turn on; None without it. Raises ListenError if callers of the port
    for nodes could not be distinguished: without TLS that port must be on loopback (CM-61)."""
    if not settings[ACCESS_CONTROL]:
        return None
    authentication = authentication or Authentication()
    host = internal_host(settings)
    if certificates is None and not is_loopback(host):
        raise ListenError(
            f"{ACCESS_CONTROL.name} is on, and the port for nodes is at {host} without TLS: everyone who reaches it "
            "could read and write share state. Turn TLS on with the settings ssl.certificate.location, "
            f"ssl.key.location and ssl.ca.location, or let it listen on this machine only: "
            f"{INTERNAL_LISTEN_HOST.name}=127.0.0.1."
        )
    if settings[SSL_CLIENT_AUTH] != "required" and not authentication.takes_tokens:
        log.warning(
            "access_control_without_principals",
            cause=f"clients are not asked for certificates ({SSL_CLIENT_AUTH.name} is {settings[SSL_CLIENT_AUTH]})",
            effect=f"every client is {ANONYMOUS}, and may do what the entries for that name allow",
            try_next=f"turn TLS on with {SSL_CLIENT_AUTH.name}=required, or set {JWKS_URL.name} for tokens",
        )
    own = (lambda: None) if certificates is None else _own_name(certificates, authentication)
    asks = settings[SSL_CLIENT_AUTH] == "required" or authentication.takes_tokens
    return Access(super_users(settings[SUPER_USERS]), own, asks_callers=asks)


def _own_name(certificates: NodeCertificates, authentication: Authentication) -> Callable[[], str | None]:
    return lambda: authentication.name_of(certificates.current.certificate)


def warn_of_plain_credentials(settings: Settings, *, takes: bool) -> None:
    """Log that tokens and passwords can be read on their way to this node, if that is so (CM-186 (k)).

    `takes`: whether it takes any without TLS.
    """
    host = settings[LISTEN_HOST]
    if takes and not is_loopback(host):
        log.warning(
            "credentials_in_plaintext",
            host=host,
            cause="this node accepts tokens or passwords, and other machines can reach its port without TLS",
            effect="anyone who can read the network can use them",
            try_next=f"turn TLS on: {SSL_CERTIFICATE.name}, {SSL_KEY.name}, {SSL_CA.name}",
        )


def check_certificates(settings: Settings) -> bool:
    """Return whether the settings name certificates, and log nothing. Raises ListenError for unusable ones."""
    files = _certificate_files(settings)
    if files is not None:
        with _explained():
            read_certificates(files, datetime.now(UTC))
    return files is not None


def _certificate_files(settings: Settings) -> CertificateFiles | None:
    if not settings[SSL_CERTIFICATE]:
        return None
    return CertificateFiles(*(Path(settings[each]) for each in (SSL_CERTIFICATE, SSL_KEY, SSL_CA)))


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except CertificateError as error:
        raise ListenError(f"TLS cannot be served: {error}") from error
