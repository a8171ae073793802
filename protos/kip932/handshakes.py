"""Explains gRPC's texts for a connection that failed during the TLS handshake, and recognises the explanations (CM-60).
Pure."""

from __future__ import annotations

from typing import Final

#: What happened if this side gave up because the time for connecting was over: nothing is known to be wrong with TLS.
SLOW: Final = "it took the connection, but did not go on with the TLS handshake in time"
#: gRPC's texts for a failed handshake, and what they mean.
_MEANINGS: Final = (
    ("unsupported certificate purpose", "its certificate is not for servers (extended key usage serverAuth)"),
    ("WRONG_VERSION_NUMBER", "nothing there speaks TLS; is it a port without TLS, called with security.protocol=SSL?"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate has expired, or was not issued by an authority in ssl.ca.location "
        "(of the system, if that is not set)",
    ),
    (
        "Failed to create security handshaker",
        "gRPC cannot use the files in ssl.*: is the key the certificate's and not encrypted, and are all of them PEM?",
    ),
    ("Handshake read failed (FD Shutdown", f"{SLOW}; is it overloaded or paused?"),
    (
        "Handshake read failed",
        "it ended the connection during the TLS handshake; is it a port without TLS, such as metrics.port?",
    ),
    (
        "Trying to connect an http1.x server",
        "an HTTP server is there, not a node's listen.port; is it a node's metrics.port?",
    ),
    ("Hostname Verification Check failed", "its certificate is for other names and addresses than the one called"),
)
_CLOSED: Final = "it closed the new connection at once; "
_NO_TLS: Final = "if it serves TLS, security.protocol=SSL is missing here"
_REFUSED: Final = "perhaps it requires a client certificate (ssl.certificate.location), or did not accept this one"
_UNCONNECTED: Final = "failed to connect"
_SOCKET_CLOSED: Final = "Socket closed"


def explained(details: str, *, tls: bool, shown: str = "") -> str:
    """Return gRPC's words for a failure, and what they mean if the connection failed for TLS. `tls`: this side speaks
    it. `shown`: what is known about the certificate that this side shows."""
    meaning = next((meaning for words, meaning in _MEANINGS if words in details), "")
    if _UNCONNECTED in details and _SOCKET_CLOSED in details:
        meaning = _CLOSED + ((shown or _REFUSED) if tls else _NO_TLS)
    return f"{details} ({meaning})" if meaning else details


def is_about_handshake(text: str) -> bool:
    """Return whether an error's text says that something was reached, and that TLS failed there or it is not a node."""
    meanings = (meaning for _, meaning in _MEANINGS if not meaning.startswith(SLOW))
    return any(meaning in text for meaning in (*meanings, _CLOSED))
