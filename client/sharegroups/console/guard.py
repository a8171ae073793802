"""Decides which requests the console answers: its host's names, and for changes the page that they come from
(CT-163). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from kip932.rpc.loopback import is_loopback

#: Sent with every response: pages use nothing but the console's own files, and no other site can frame them.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_name(authority: str) -> str:
    """Return the host in `host:port` in lower case, without brackets; "" if it is none."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def is_known_host(authority: str, names: Collection[str], *, on_loopback: bool) -> bool:
    """Return whether a Host header names the console. `names`: those that its command was given, in lower case.

    A page of another site whose name was made to resolve to this machine (DNS rebinding) still sends that name.
    """
    name = host_name(authority)
    return name in names or (on_loopback and is_loopback(name))


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a page of the console itself sends the request. Browsers set both headers, pages cannot."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") == "same-origin"
    try:
        split = urlsplit(origin)
    except ValueError:
        return False
    return split.scheme in ("http", "https") and bool(split.netloc) and split.netloc == headers.get("host")


def listen_refusal(host: str, *, has_certificate: bool, behind_tls_proxy: bool) -> str | None:
    """Return why the console does not listen on an address; None if it may."""
    if is_loopback(host) or has_certificate or behind_tls_proxy:
        return None
    return (
        f"--host {host} can be reached from other machines, and without TLS anyone on the way can read passwords and "
        "records. Give --certificate and --key; or --behind-tls-proxy if a proxy in front of the console does TLS; or "
        "leave --host out to listen on this machine only"
    )
