"""The rules of a node's user: those in docs/howto/deploy.md, and enough for every command in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.store_rights import acl_rules
from tests.support.store_users import commands, documented_users

REDIS = Path(scripts.__file__).parents[1]
#: Commands in the code that only a restore needs.
ONLY_RESTORES = {"hsetnx", "type"}
SENTINELS = "sentinel|get-master-addr-by-name"
CLUSTERS = {"cluster|info", "cluster|slots"}
_CONTAINERS = {"acl", "cluster", "config", "script", "sentinel", "xinfo"}
#: A command as a tuple, `("XADD", …` or `(("GET", …`, and as a call in a function.
_TUPLE = re.compile(r'\(\s*"([A-Z]{3,})"(?:, "([A-Z-]+)")?')
_CALL = re.compile(r"redis\.call\('([A-Z]+)'(?:, '([A-Z]+)')?")


def in_code() -> set[str]:
    """Return the commands that this package and its functions send."""
    found = set()
    for path in REDIS.rglob("*"):
        if path.suffix in {".py", ".lua"} and path.name != "store_rights.py":
            pattern = _TUPLE if path.suffix == ".py" else _CALL
            for name, part in pattern.findall(path.read_text()):
                word = name.lower()
                found.add(f"{word}|{part.lower()}" if word in _CONTAINERS and part else word)
    return found - {"err"}


@pytest.mark.rule("CM-184")
def test_the_page_has_the_rules_of_a_node() -> None:
    assert documented_users()["sharegroups"] == acl_rules(list(ShardKind))


@pytest.mark.rule("CM-184")
def test_a_node_with_one_role_needs_the_keys_of_its_own_shards_only() -> None:
    every = acl_rules(list(ShardKind))
    for kind in ShardKind:
        others = {f"~{{{other.value}:*" for other in ShardKind if other is not kind}
        assert acl_rules([kind]) == [rule for rule in every if rule not in others]


@pytest.mark.rule("CM-184")
def test_the_rules_have_each_command_of_the_code_and_no_other() -> None:
    """Without this test, a command added to the code without a rule would fail only on a store with users."""
    allowed = commands(acl_rules(list(ShardKind), clustered=True)) | ONLY_RESTORES | {SENTINELS}
    assert in_code() - allowed == set()
    assert allowed - in_code() == {"client|setinfo"}, "redis-py sends this command"


@pytest.mark.rule("CM-184")
def test_a_cluster_needs_two_commands_more() -> None:
    every = list(ShardKind)
    assert commands(acl_rules(every, clustered=True)) - commands(acl_rules(every)) == CLUSTERS
