"""The keys that damaged entries affect, and the copies that make them whole again."""

from __future__ import annotations

import pytest

from shard_runtime.hosting.quarantine import Quarantine
from shard_runtime.hosting.shard import DamagedEntry


def entry(at: str, key: str | None = None) -> DamagedEntry:
    return DamagedEntry("{sgs:1}:log", at, "is damaged", key)


def test_without_damage_every_key_is_whole() -> None:
    quarantine = Quarantine()
    assert quarantine.copied("a") is None
    assert not quarantine.damage_of("a")
    assert not quarantine.entries()
    quarantine.restore("a", None)


@pytest.mark.rule("CM-107")
def test_a_known_key_is_hurt_alone_until_a_copy_of_it_follows() -> None:
    quarantine = Quarantine()
    quarantine.add(entry("1-1", "a"))
    quarantine.add(entry("1-3", "a"))
    quarantine.add(entry("1-4", "b"))
    assert [found.at for found in quarantine.damage_of("a")] == ["1-1", "1-3"]
    assert not quarantine.damage_of("c")
    assert quarantine.named() == ("a", "b")
    healed = quarantine.copied("a")
    assert not quarantine.damage_of("a")
    assert [found.at for found in quarantine.entries()] == ["1-4"]
    quarantine.restore("a", healed)  # the store refused the copy
    assert [found.at for found in quarantine.damage_of("a")] == ["1-1", "1-3"]
    quarantine.copied("a")
    quarantine.add(entry("1-9", "a"))
    assert [found.at for found in quarantine.damage_of("a")] == ["1-9"]


@pytest.mark.rule("CM-107")
def test_an_unknown_key_may_be_any_that_has_no_copy_behind_it() -> None:
    quarantine = Quarantine()
    quarantine.copied("before")
    quarantine.add(entry("1-2"))
    healed = quarantine.copied("behind")
    assert [found.at for found in quarantine.damage_of("before")] == ["1-2"]
    assert [found.at for found in quarantine.damage_of("never heard of")] == ["1-2"]
    assert not quarantine.damage_of("behind")
    quarantine.restore("behind", healed)
    assert [found.at for found in quarantine.damage_of("behind")] == ["1-2"]
    quarantine.copied("behind")
    quarantine.restore("behind", quarantine.copied("behind"))  # refused, but the earlier copy is still there
    assert not quarantine.damage_of("behind")
    quarantine.add(entry("1-5", "behind"))
    assert [found.at for found in quarantine.damage_of("behind")] == ["1-5"]
    assert [found.at for found in quarantine.damage_of("before")] == ["1-2"]
    quarantine.add(entry("1-7"))
    assert [found.at for found in quarantine.damage_of("behind")] == ["1-2", "1-7", "1-5"]
    assert [found.at for found in quarantine.entries()] == ["1-2", "1-7", "1-5"]
