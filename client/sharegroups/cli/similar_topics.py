"""Finds the topic that was probably meant by the name of one that does not exist (CT-172)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kip932.errors import KafkaError
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin


def similar_topics(admin: Admin, unknown: Iterable[str]) -> dict[str, str]:
    """For each of these topics, which do not exist, return the hint at the one that was probably meant; "" without
    one."""
    names = list(unknown)
    known: list[str] = []
    if names:
        with suppress(KafkaError):  # only the hint is missing then
            known = list(admin.list_topics())
    return {name: did_you_mean(name, known) for name in names}
