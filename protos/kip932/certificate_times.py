"""Says whether a certificate is valid now, in the same words for a node's own certificate and for a client's (CM-60).

A client depends on no library for certificates, so what is needed here is read from the DER (RFC 5280, section 4.1).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
#: The tags of ASN.1 that are looked at, and the identifier of a common name.
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_UTF16: Final = 0x1E
_COMMON_NAME: Final = bytes((0x55, 0x04, 0x03))


class CertificateTimes(NamedTuple):
    """The common name of a certificate's subject, "" without one, and the times between which it is valid."""

    common_name: str
    begins: datetime
    ends: datetime


def outdated(subject: str, path: str, begins: datetime, ends: datetime, now: datetime) -> str:
    """Return why a certificate is not valid now, with its subject and path; "" if it is."""
    if now > ends:
        return f"the certificate of {subject} in {path} expired at {ends:%Y-%m-%d %H:%M:%S} UTC; renew it"
    if now < begins:
        return (
            f"the certificate of {subject} in {path} is valid only from {begins:%Y-%m-%d %H:%M:%S} UTC, but here it is "
            f"{now:%Y-%m-%d %H:%M:%S} UTC; check this machine's clock"
        )
    return ""


def certificate_times(pem: bytes) -> CertificateTimes | None:
    """Return what the first certificate of a file in PEM says; None if it cannot be read."""
    found = _PEM.search(pem.decode("ascii", "replace"))
    if found is None:
        return None
    try:
        return _read(ssl.PEM_cert_to_DER_cert(found.group()))
    except (IndexError, ValueError, StopIteration):
        return None


def _read(der: bytes) -> CertificateTimes:
    _, whole = next(_parts(der))
    _, signed = next(_parts(whole))
    fields = [part for part in _parts(signed) if part[0] != _VERSION]
    _, _, _, (_, validity), (_, subject), *_ = fields
    begins, ends = (_time(tag, value) for tag, value in _parts(validity))
    return CertificateTimes(_common_name(subject), begins, ends)


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and value of each element. Raises IndexError and ValueError for what is not DER."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size]), at + size
        if at + length > len(data):
            raise ValueError("an element is longer than what contains it")
        yield tag, data[at : at + length]
        at += length


def _time(tag: int, value: bytes) -> datetime:
    text = value.decode("ascii")
    if tag == _UTC_TIME:  # years 50 to 99 are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _common_name(subject: bytes) -> str:
    for _, names in _parts(subject):
        for _, attribute in _parts(names):
            (_, kind), (tag, value) = _parts(attribute)
            if kind == _COMMON_NAME:
                return value.decode("utf-16-be" if tag == _UTF16 else "utf-8", "replace")
    return ""
