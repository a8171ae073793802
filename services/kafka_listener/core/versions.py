"""Which versions of which requests are served, and what ApiVersions says of them (KL-10, KL-11)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

PRODUCE: Final = 0
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
#: What a client may send before it has said who it is (KL-22).
BEFORE_AUTHENTICATION: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_MAX: Final = 256
#: From this version on a client says what it is.
_NAMED_FROM: Final = 3


class Range(NamedTuple):
    """Versions of one API: from the least to the greatest, both inclusive."""

    key: int
    least: int
    greatest: int


def offered(served: Mapping[int, range]) -> list[Range]:
    """Return what ApiVersions offers, in the order of the keys. `served`: the versions that are served, by key.

    Produce is offered from version 0: librdkafka uses no compression, and an old format, where it is not.
    """
    return [
        Range(key, 0 if key == PRODUCE else versions.start, versions.stop - 1)
        for key, versions in sorted(served.items())
        if versions
    ]


def is_known_software(version: int, name: str | None, software_version: str | None) -> bool:
    """Return whether the names that a client gives itself in ApiVersions are names; before version 3 it gives none."""
    if version < _NAMED_FROM:
        return True
    return all(
        each is not None and len(each) <= _SOFTWARE_MAX and _SOFTWARE.fullmatch(each) is not None
        for each in (name, software_version)
    )


def may_come_first(key: int, *, authenticated: bool) -> bool:
    """Return whether a request with this key may come from a client that has not said who it is, or has."""
    return authenticated or key in BEFORE_AUTHENTICATION


def common(offered_versions: range, known: Iterable[int]) -> range:
    """Return the offered versions that can be read and written."""
    versions = [each for each in known if each in offered_versions]
    return range(min(versions), max(versions) + 1) if versions else range(0)
