"""The settings `store.*`: declared once for nodes, for commands that open the store, and for the pipeline (CM-200).

Passwords are in files, which are read again for each new connection: no argument, plan or error shows one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kip932.nearest_name import did_you_mean
from kip932.setting import Setting, SettingTable, boolean, integer, listing, string, table
from kip932.settings_file import FILE_VARIABLE, settings_in
from kip932.store_tls import FOR_SENTINELS, FOR_STORE, NO_TLS_FILES, StoreTls

STORE_URL = string("store.url", "redis://127.0.0.1:6379", "The store; redis:// or rediss://, several nodes by commas.",
                   sensitive=True)  # fmt: skip
STORE_USERNAME = string(
    "store.username", "", "User of the store (ACL); empty for the one in store.url, else its default user."
)
STORE_PASSWORD = string(  # CM-184
    "store.password.location", "",
    "File with the password of the store's user: one line. It is read again for each new connection, so that a "
    "changed password needs no restart.",
)  # fmt: skip
STORE_SSL_CA = string(  # CM-195
    "store.ssl.ca.location", "",
    "PEM file with the certificates of the authorities by which the store is checked, with a rediss:// URL; empty for "
    "those of the system.",
)  # fmt: skip
STORE_SSL_CERTIFICATE = string(
    "store.ssl.certificate.location", "",
    "PEM file with this process's certificate for the store, if it requires one, and the intermediate ones after it.",
)  # fmt: skip
STORE_SSL_KEY = string("store.ssl.key.location", "", "PEM file with the key of that certificate, not encrypted.")
STORE_SENTINEL_USERNAME = string(  # CM-230
    "store.sentinel.username", "",
    "User of the Sentinels (ACL), with a redis+sentinel:// URL; empty for their default user. The store's user and "
    "password are never sent to Sentinels.",
)  # fmt: skip
STORE_SENTINEL_PASSWORD = string(
    "store.sentinel.password.location", "",
    "File with the password of the Sentinels' user: one line. It is read again for each new connection. Empty for "
    "Sentinels that require none.",
)  # fmt: skip
STORE_SENTINEL_SSL = boolean(
    "store.sentinel.ssl.enable", True,
    "Whether Sentinels are called with TLS, with a rediss+sentinel:// URL; false for Sentinels without TLS of a store "
    "that has it.",
)  # fmt: skip
STORE_SENTINEL_SSL_CA = string(
    "store.sentinel.ssl.ca.location", "",
    "PEM file with the certificates of the authorities by which Sentinels are checked. If one of store.sentinel.ssl.*."
    "location is set, none of store.ssl.* is used for Sentinels.",
)  # fmt: skip
STORE_SENTINEL_SSL_CERTIFICATE = string(
    "store.sentinel.ssl.certificate.location", "",
    "PEM file with this process's certificate for Sentinels, if they require another one than the store.",
)  # fmt: skip
STORE_SENTINEL_SSL_KEY = string(
    "store.sentinel.ssl.key.location", "", "PEM file with the key of that certificate, not encrypted."
)
STORE_REPLICAS = integer("store.replicas", 0, "Replicas the store is configured with.", low=0)  # CM-12
STORE_FSYNC_ALWAYS = boolean(
    "store.fsync.always", False, "Whether the store syncs every write to disk before it answers."
)
STORE_WHOLE_HISTORIES: Setting[tuple[str, ...]] = listing(
    "store.whole.histories", (),
    "The store's history, then those before it that ended with everything on disk; `sharegroups up` sets it.",  # CM-104
)  # fmt: skip
STORE_UNSAFE_STOP = boolean(
    "store.unsafe.stop.writes", False,
    "Whether writes stop while the store is set to lose data (appendonly, appendfsync, maxmemory-policy), instead of "
    "going on with an error in the log.",  # CM-171
)  # fmt: skip
STORE_PRODUCE_PERCENT = integer(
    "store.produce.memory.percent", 95,
    "The part of the store's memory limit up to which leaders take records; the rest is for acknowledgements, "
    "deletions and metadata. 100 turns this off: the store then refuses everything at its limit.",
    low=10, high=100, unit="%",  # CM-214
)  # fmt: skip

STORE_SETTINGS: Final[SettingTable] = table(
    value for name, value in list(globals().items()) if isinstance(value, Setting) and name.isupper()
)
#: What takes the place of a setting with a password, which there is none of, by all names that one could have.
_NO_PASSWORD: Final = (
    " No setting holds a password itself. Put it into a file and name that in {0.name} (variable {0.environment})"
)
_OR_BY_VARIABLE: Final = (
    "; or, for a command with --store, into a variable whose name does not begin with SHAREGROUPS_, and give that name "
    "with --password-env."
)
_PASSWORDS: Final = {
    "store.password": f"{_NO_PASSWORD.format(STORE_PASSWORD)}{_OR_BY_VARIABLE}",
    "store.sentinel.password": f"{_NO_PASSWORD.format(STORE_SENTINEL_PASSWORD)}.",
}
_TLS: Final = (STORE_SSL_CA, STORE_SSL_CERTIFICATE, STORE_SSL_KEY)
_SENTINEL_TLS: Final = (STORE_SENTINEL_SSL_CA, STORE_SENTINEL_SSL_CERTIFICATE, STORE_SENTINEL_SSL_KEY)
#: What a process needs to reach a store, besides the URL.
STORE_ACCESS: Final[tuple[Setting[Any], ...]] = (
    STORE_USERNAME,
    STORE_PASSWORD,
    *_TLS,
    STORE_SENTINEL_USERNAME,
    STORE_SENTINEL_PASSWORD,
    STORE_SENTINEL_SSL,
    *_SENTINEL_TLS,
)
#: How variables of this project begin, and of no other program: Kubernetes makes SHAREGROUPS_STORE_PORT for a service
#: of that name.
_OURS: Final = tuple(
    f"SHAREGROUPS_STORE_{word}"
    for word in ("PASSWORD", "SSL", "URL", "USER", "SENTINEL_PASSWORD", "SENTINEL_SSL", "SENTINEL_USER")
)
#: More than any password; a wrong path may name a large file.
_PASSWORD_BYTES_MAX: Final = 4_096


def store_hint(name: str, known: Iterable[str]) -> str:
    """Return what to use in place of a setting or variable that does not exist; "" if that is unknown."""
    dotted = name.removeprefix("SHAREGROUPS_").lower().replace("_", ".")
    return _PASSWORDS.get(dotted) or did_you_mean(name, known, 0.5)


class PasswordFileError(ValueError):
    """The file with a password, of the store or of its Sentinels, cannot be used; the message names it, and never shows
    what is in it."""


@dataclass(frozen=True, slots=True)
class SentinelAccess:
    """What a process needs besides the URL to reach a store's Sentinels (CM-230). Nothing of the store's own user is
    sent to them.

    `username`: "" for the default user; `password`: the file that holds it, None without one. `tls`: without files,
    those for the store are used; `encrypted`: whether TLS is used at all, with a rediss+sentinel:// URL.
    """

    username: str = ""
    password: Path | None = None
    tls: StoreTls = field(default_factory=lambda: StoreTls(prefix=FOR_SENTINELS))
    encrypted: bool = True

    @property
    def given(self) -> str:
        """Return the name of a setting that says something about Sentinels; "" if none does."""
        return next(iter(self.texts()), "")

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> SentinelAccess:
        """Return what settings say, given by name. Raises ValueError for what is neither true nor false."""
        files = _files_of(texts, _SENTINEL_TLS, FOR_SENTINELS)
        encrypted = texts.get(STORE_SENTINEL_SSL.name) or STORE_SENTINEL_SSL.text(STORE_SENTINEL_SSL.default)
        username = texts.get(STORE_SENTINEL_USERNAME.name, "")
        return cls(username, _path(texts, STORE_SENTINEL_PASSWORD), files, STORE_SENTINEL_SSL.value(encrypted))

    def texts(self) -> dict[str, str]:
        """Return it as settings by name, without those that are not set."""
        found = {STORE_SENTINEL_USERNAME.name: self.username} if self.username else {}
        found |= _named(self.password, STORE_SENTINEL_PASSWORD) | _files(self.tls, _SENTINEL_TLS)
        return found if self.encrypted else found | {STORE_SENTINEL_SSL.name: "false"}


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """What a process needs besides the store's URL to reach it. `username`: "" for the one in the URL; `password`: the
    file that holds it, None for the one in the URL."""

    username: str = ""
    password: Path | None = None
    tls: StoreTls = NO_TLS_FILES
    sentinel: SentinelAccess = field(default_factory=SentinelAccess)

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> StoreAccess:
        """Return what settings say, given by name; others are ignored."""
        user, files = texts.get(STORE_USERNAME.name, ""), _files_of(texts, _TLS, FOR_STORE)
        return cls(user, _path(texts, STORE_PASSWORD), files, SentinelAccess.of(texts))

    def texts(self) -> dict[str, str]:
        """Return it as settings by name, without those that are not set."""
        found = _named(self.password, STORE_PASSWORD) | _files(self.tls, _TLS)
        found |= {STORE_USERNAME.name: self.username} if self.username else {}
        return found | self.sentinel.texts()


def _path(texts: Mapping[str, str], setting: Setting[str]) -> Path | None:
    given = texts.get(setting.name, "")
    return Path(given) if given else None


def _files_of(texts: Mapping[str, str], settings: Sequence[Setting[str]], prefix: str) -> StoreTls:
    authorities, certificate, key = (_path(texts, each) for each in settings)
    return StoreTls(authorities, certificate, key, prefix)


def _named(path: Path | None, setting: Setting[str]) -> dict[str, str]:
    return {} if path is None else {setting.name: str(path)}


def _files(tls: StoreTls, settings: Sequence[Setting[str]]) -> dict[str, str]:
    files = zip((tls.authorities, tls.certificate, tls.key), settings, strict=True)
    return {setting.name: str(path) for path, setting in files if path is not None}


def refuse_without_sentinels(access: SentinelAccess) -> None:
    """Raise ValueError for settings of Sentinels beside a URL that names none: they would have no effect (CM-230)."""
    if access.given:
        raise ValueError(
            f"{access.given} is set, but store.url names no Sentinels; expected redis+sentinel:// or rediss+sentinel://"
        )


def sentinel_login(query: MutableMapping[str, str], access: SentinelAccess) -> tuple[str, str | None]:
    """Take the Sentinels' user and password out of a URL's options: `sentinel_username` and `sentinel_password`.

    Returns the user, "" for the default one, and the password, None without one in the URL. Raises ValueError, which
    shows no password, for what the settings give as well.
    """
    username, password = query.pop("sentinel_username", ""), query.pop("sentinel_password", None)
    if username and access.username and username != access.username:
        raise ValueError(
            f"it has the option sentinel_username={username}, but {STORE_SENTINEL_USERNAME.name} is {access.username}"
        )
    if password and access.password is not None:
        raise ValueError(
            f"it has the option sentinel_password, and {STORE_SENTINEL_PASSWORD.name}={access.password} names another"
        )
    return access.username or username, password or None


def read_store(url: str, environ: Mapping[str, str], file: Path | None = None) -> tuple[str, StoreAccess]:
    """Read where the store is, "" when that is not said, and how to reach it, for a command that is not a node.

    As for a node, `url` wins over the environment, and that over the file that SHAREGROUPS_CONFIG names; but a `file`
    that was named to the command wins over the environment. What the environment says about another store than the one
    chosen is not used: its password would go to the wrong host. Settings other than `store.*` are a node's own. Raises
    ValueError for a file that cannot be read and for an unknown name.
    """
    ambient = _settings_of(Path(environ[FILE_VARIABLE])) if environ.get(FILE_VARIABLE) and not file else {}
    variables = {each.environment: name for name, each in STORE_SETTINGS.items()}
    for variable in environ:
        if variable in variables:
            ambient[variables[variable]] = environ[variable]
        elif variable.startswith(_OURS):
            raise ValueError(f"Unknown setting: {variable} in the environment.{store_hint(variable, variables)}")
    given = _settings_of(file) if file else {}
    chosen, there = url or given.get(STORE_URL.name, ""), ambient.get(STORE_URL.name, "")
    if chosen and there and _place(chosen) != _place(there):
        ambient = {}
    texts = {**ambient, **given}
    return chosen or there, StoreAccess.of(texts)


def _settings_of(path: Path) -> dict[str, str]:
    texts = {name: text for name, text in settings_in(path).items() if name.startswith("store.")}
    for name in texts.keys() - STORE_SETTINGS.keys():
        raise ValueError(f"Unknown setting: {name} in {path}.{store_hint(name, STORE_SETTINGS)}")
    return texts


def _place(url: str) -> str:
    """Return the hosts and ports of a URL, without credentials, database and options."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def password_in(path: Path, named_by: Setting[str] = STORE_PASSWORD) -> str:
    """Read a password: the whole file, without a final newline. Raises PasswordFileError, with the setting that
    names the file."""
    setting = f"{named_by.name}={path}"
    try:
        with path.open("rb") as file:
            found = file.read(_PASSWORD_BYTES_MAX + 1)
        text = found.decode()
    except OSError as error:
        raise PasswordFileError(f"{setting}: it cannot be read: {error.strerror}; expected a file") from error
    except UnicodeDecodeError:
        raise PasswordFileError(f"{setting}: it is not text; expected the password in UTF-8") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password or len(found) > _PASSWORD_BYTES_MAX:
        shape = f"{len(text.splitlines())} lines, {len(found)} bytes" if found else "nothing"
        raise PasswordFileError(f"{setting}: it holds {shape}; expected one line with the password")
    return password
