"""TLS towards the store: the files by which its certificate is checked and this process is known, and what a failed
connection may mean (CM-195)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: A store without TLS waits for the end of what it takes for a command.
_SILENT: Final = "perhaps nothing there speaks TLS; if the store has none, its URL is redis:// instead of rediss://"
_NAMES: Final = (
    "its certificate is for other names and addresses than the one by which it was called: call it by one of those, or "
    "have a certificate issued that has this one, too"
)
_UNKNOWN: Final = (
    "its certificate was not issued by an authority in {authorities}: name there the PEM file with the certificate of "
    "the authority that did"
)
_NO_TLS: Final = "nothing there speaks TLS; if the store has none, its URL is redis:// instead of rediss://"
#: Words of Python's and OpenSSL's errors of a handshake, what they mean, and what to do.
_REFUSED: Final = (
    ("Hostname mismatch", _NAMES),
    ("IP address mismatch", _NAMES),
    ("certificate has expired", "its certificate has expired; renew it, or correct this host's clock"),
    ("certificate is not yet valid", "its certificate is not valid yet; compare its clock and this host's"),
    ("CERTIFICATE_VERIFY_FAILED", _UNKNOWN),
    ("WRONG_VERSION_NUMBER", _NO_TLS),
    ("RECORD_LAYER_FAILURE", _NO_TLS),
    ("CERTIFICATE_REQUIRED", "it requires a client certificate: set {prefix}.certificate.location and its key"),
    ("UNKNOWN_CA", "it did not accept the certificate in {prefix}.certificate.location: of another authority?"),
)
_UNANSWERED: Final = (("no answer", _SILENT), ("Timeout connecting", _SILENT))
_NO_TLS_TRIED: Final = "if the store serves TLS, its URL must begin with rediss://"
_ENDED: Final = "if it has no TLS, its URL is redis:// instead of rediss://; or it requires a client certificate"
_CLOSED: Final = (
    "Connection closed by server",
    "Connection reset",
    "Connection lost",
    "UNEXPECTED_EOF",
    "EOF occurred",
)
#: The settings of the files for the store, and for its Sentinels where they have their own (CM-230).
FOR_STORE: Final = "store.ssl"
FOR_SENTINELS: Final = "store.sentinel.ssl"


@dataclass(frozen=True, slots=True)
class StoreTls:
    """The files of the settings store.ssl.*; None where one is not set. They are read for each new connection.

    `authorities`: None for those of the system. `prefix`: how the names of the settings begin.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    prefix: str = FOR_STORE

    def __bool__(self) -> bool:
        return any((self.authorities, self.certificate, self.key))

    def options(self) -> dict[str, str]:
        """Return redis-py's options for these files. Raises ValueError, with the setting and the path, when they cannot
        be used."""
        certificate, key = f"{self.prefix}.certificate.location", f"{self.prefix}.key.location"
        if (self.certificate is None) != (self.key is None):
            raise ValueError(f"{certificate} and {key} belong together; set both or neither")
        try:
            if self.authorities is not None:
                client_context(self.authorities)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{self.prefix}.ca.location={self.authorities}: it cannot be used ({_reason(error)}); expected the "
                "certificates of its authorities in PEM"
            ) from error
        try:
            if self.certificate is not None and self.key is not None:
                client_context(None, self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{certificate}={self.certificate} and {key}={self.key} cannot be "
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
    meaning = next((meaning for words, meaning in (*_REFUSED, *_UNANSWERED) if words in cause), "") if tls else ""
    meaning = meaning.format(authorities=_authorities(files, ca_in_url), prefix=files.prefix)
    if not meaning and any(words in cause for words in _CLOSED):
        meaning = _ENDED if tls else _NO_TLS_TRIED
    return f"{cause} ({meaning})" if meaning else cause


def is_of_handshake(cause: str, files: StoreTls = NO_TLS_FILES) -> bool:
    """Return whether a server was reached, or could have been, and what has to change are certificates, their files or
    the URL's scheme: starting another server would not help (CM-231)."""
    try:
        files.options()
    except ValueError:
        return True
    return any(words in cause for words, _ in _REFUSED)


def _authorities(files: StoreTls, ca_in_url: str) -> str:
    if files.authorities is not None:
        return f"{files.prefix}.ca.location={files.authorities}"
    if ca_in_url:
        return f"ssl_ca_certs={ca_in_url}"
    return f"{files.prefix}.ca.location, which is not set, so that those of the system count"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None) or str(
        error
    )
