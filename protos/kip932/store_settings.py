"""The settings `store.*`: declared once for nodes, for commands that open the store, and for the pipeline (CM-200).

Passwords are in files, which are read again for each new connection: no argument, plan or error shows one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kip932.nearest_name import did_you_mean
from kip932.setting import Setting, SettingTable, boolean, integer, listing, string, table
from kip932.settings_file import FILE_VARIABLE, settings_in
from kip932.store_tls import NO_TLS_FILES, StoreTls

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
    f" No setting holds a password itself. Put it into a file and name that in {STORE_PASSWORD.name} (variable "
    f"{STORE_PASSWORD.environment}); or, for a command with --store, into a variable whose name does not begin with "
    "SHAREGROUPS_, and give that name with --password-env."
)
_PASSWORDS: Final = frozenset({"store.password", "SHAREGROUPS_STORE_PASSWORD"})
_TLS: Final = (STORE_SSL_CA, STORE_SSL_CERTIFICATE, STORE_SSL_KEY)
#: How variables of this project begin, and of no other program: Kubernetes makes SHAREGROUPS_STORE_PORT for a service
#: of that name.
_OURS: Final = tuple(f"SHAREGROUPS_STORE_{word}" for word in ("PASSWORD", "SSL", "URL", "USER"))
#: More than any password; a wrong path may name a large file.
_PASSWORD_BYTES_MAX: Final = 4_096


def store_hint(name: str, known: Iterable[str]) -> str:
    """Return what to use in place of a setting or variable that does not exist; "" if that is unknown."""
    return _NO_PASSWORD if name in _PASSWORDS else did_you_mean(name, known, 0.5)


class PasswordFileError(ValueError):
    """The file with the store's password cannot be used; the message names it, and never shows what is in it."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """What a process needs besides the store's URL to reach it. `username`: "" for the one in the URL; `password`: the
    file that holds it, None for the one in the URL."""

    username: str = ""
    password: Path | None = None
    tls: StoreTls = NO_TLS_FILES

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> StoreAccess:
        """Return what settings say, given by name; others are ignored."""
        paths = (texts.get(each.name, "") for each in (STORE_PASSWORD, *_TLS))
        password, *files = (Path(each) if each else None for each in paths)
        return cls(texts.get(STORE_USERNAME.name, ""), password, StoreTls(*files))

    def texts(self) -> dict[str, str]:
        """Return it as settings by name, without those that are not set."""
        files = (self.password, self.tls.authorities, self.tls.certificate, self.tls.key)
        found = {each.name: str(path) for each, path in zip((STORE_PASSWORD, *_TLS), files, strict=True) if path}
        return found | ({STORE_USERNAME.name: self.username} if self.username else {})


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


def password_in(path: Path) -> str:
    """Read a password: the whole file, without a final newline. Raises PasswordFileError."""
    setting = f"{STORE_PASSWORD.name}={path}"
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
