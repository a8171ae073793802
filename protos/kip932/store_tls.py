"""TLS towards the store: the files by which its certificate is checked and this process is known, and what a failed
connection may mean (CM-195)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: A store without TLS waits for the end of what it takes for a command.
_SILENT: Final = "perhaps nothing there speaks TLS; if the store has none, its URL is redis:// instead of rediss://"
_OF_NO_AUTHORITY: Final = "CERTIFICATE_VERIFY_FAILED"
#: Words of Python's and OpenSSL's errors, and what they mean.
_MEANINGS: Final = (
    ("Hostname mismatch", "its certificate is for other names and addresses than the one in store.url"),
    ("IP address mismatch", "its certificate is for other names and addresses than the one in store.url"),
    ("certificate has expired", "its certificate has expired; renew it, or correct this host's clock"),
    ("certificate is not yet valid", "its certificate is not valid yet; compare its clock and this host's"),
    (_OF_NO_AUTHORITY, "its certificate was not issued by an authority in {authorities}"),
    (
        "WRONG_VERSION_NUMBER",
        "nothing there speaks TLS; if the store has none, its URL is redis:// instead of rediss://",
    ),
    (
        "RECORD_LAYER_FAILURE",
        "nothing there speaks TLS; if the store has none, its URL is redis:// instead of rediss://",
    ),
    ("no answer", _SILENT),
    ("Timeout connecting", _SILENT),
    ("CERTIFICATE_REQUIRED", "it requires a client certificate: set store.ssl.certificate.location and its key"),
    ("UNKNOWN_CA", "it did not accept the certificate in store.ssl.certificate.location: of another authority?"),
)
_NO_TLS_TRIED: Final = "if the store serves TLS, its URL must begin with rediss://"
_ENDED: Final = "if it has no TLS, its URL is redis:// instead of rediss://; or it requires a client certificate"
_CLOSED: Final = (
    "Connection closed by server",
    "Connection reset",
    "Connection lost",
    "UNEXPECTED_EOF",
    "EOF occurred",
)


@dataclass(frozen=True, slots=True)
class StoreTls:
    """The files of the settings store.ssl.*; None where one is not set. They are read for each new connection.

    `authorities`: None for those of the system.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __bool__(self) -> bool:
        return any((self.authorities, self.certificate, self.key))

    def options(self) -> dict[str, str]:
        """Return redis-py's options for these files. Raises ValueError, with the setting and the path, when they cannot
        be used."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError(
                "store.ssl.certificate.location and store.ssl.key.location belong together; set both or neither"
            )
        try:
            if self.authorities is not None:
                client_context(self.authorities)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"store.ssl.ca.location={self.authorities}: it cannot be used ({_reason(error)}); expected the "
                "certificates of the store's authorities in PEM"
            ) from error
        try:
            if self.certificate is not None and self.key is not None:
                client_context(None, self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"store.ssl.certificate.location={self.certificate} and store.ssl.key.location={self.key} cannot be "
                f"used together ({_reason(error)}); expected a certificate and its private key in PEM, not encrypted"
            ) from error
        given = {"ssl_ca_certs": self.authorities, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        return {name: str(path) for name, path in given.items() if path is not None}


def client_context(
    authorities: Path | str | None, certificate: Path | str | None = None, key: Path | str | None = None
) -> ssl.SSLContext:
    """Return what checks a server by these authorities alone, None for those of the system.

    Raises OSError or ValueError.

    redis-py's own context accepts the system's authorities besides those that are given.
    """
    context = ssl.create_default_context(cafile=authorities)
    if certificate is not None:
        context.load_cert_chain(certificate, key, lambda: "")  # no question at the terminal for an encrypted key
    return context


#: Without any file: the store is checked by the system's authorities.
NO_TLS_FILES: Final = StoreTls()


def explained(cause: str, *, tls: bool, files: StoreTls = NO_TLS_FILES, ca_in_url: str = "") -> str:
    """Return a failure's text, and what it may mean if TLS, or its absence, explains it. `tls`: whether it was used,
    with `files` or with the authorities that the URL names. Files that cannot be used any more are the cause."""
    try:
        files.options()
    except ValueError as error:
        return str(error)
    meaning = next((meaning for words, meaning in _MEANINGS if words in cause), "") if tls else ""
    meaning = meaning.format(authorities=_authorities(files, ca_in_url))
    if not meaning and any(words in cause for words in _CLOSED):
        meaning = _ENDED if tls else _NO_TLS_TRIED
    return f"{cause} ({meaning})" if meaning else cause


def _authorities(files: StoreTls, ca_in_url: str) -> str:
    if files.authorities is not None:
        return f"store.ssl.ca.location={files.authorities}"
    if ca_in_url:
        return f"ssl_ca_certs={ca_in_url}"
    return "store.ssl.ca.location, which is not set: it was checked by the authorities of the system"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None) or str(
        error
    )
