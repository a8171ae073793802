"""deploy/store without starting it: its users have the rules of the page, its settings are those of production, and its
containers have few rights."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shard_runtime.ownership.placement import ROLE_OF_KIND
from shard_runtime.record_log.redis.store_rights import acl_rules
from tests.support.store_users import NODE, OF_SENTINELS, PEER, documented_users, sentinel_rules

STORE = Path(__file__).resolve().parents[2] / "deploy" / "store"
SERVICES: dict[str, Any] = yaml.safe_load((STORE / "compose.yaml").read_text(encoding="utf-8"))["services"]
#: Users of the page that the example does not have: one for all roles, and one that is made for a restore.
LEFT_OUT = {NODE, "sharegroups-restore"}


def users_in(name: str) -> dict[str, list[str]]:
    """Return the rules of each user in a file; every password is a hash that make.sh fills in."""
    found = re.findall(r"^user (sharegroups-[a-z-]+) on @HASH \1@ (.+)$", (STORE / name).read_text(), re.MULTILINE)
    return {user: rules.split() for user, rules in found}


def lines_of(name: str) -> set[str]:
    return set((STORE / name).read_text(encoding="utf-8").splitlines())


@pytest.mark.rule("CM-233")
def test_the_users_have_the_rules_of_the_page_and_a_role_the_keys_of_its_own_shards() -> None:
    roles = {f"sharegroups-{role.replace('_', '-')}": acl_rules([kind]) for kind, role in ROLE_OF_KIND.items()}
    others = {user: rules for user, rules in documented_users().items() if user not in LEFT_OUT}
    assert users_in("users.acl") == {**roles, **others}
    assert users_in("sentinel.conf") == {user: sentinel_rules(user) for user in (OF_SENTINELS, PEER)}
    assert {line for line in lines_of("users.acl") if line.startswith("user default")} == {
        "user default off ~* &* +@all"
    }
    assert "user default off" in lines_of("sentinel.conf")


@pytest.mark.rule("CM-233")
def test_nothing_is_thrown_away_or_sent_without_tls() -> None:
    wanted = {"appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction", "maxmemory @MEMORY@"}
    assert wanted <= lines_of("valkey.conf")
    for name in ("valkey.conf", "sentinel.conf"):
        assert {"port 0", "tls-port @PORT@", "tls-replication yes"} <= lines_of(name)
    assert "sentinel monitor main @MASTER HOST@ @MASTER PORT@ 2" in lines_of("sentinel.conf")


@pytest.mark.rule("CM-233")
def test_each_container_has_its_own_files_few_rights_and_bounds() -> None:
    assert sorted(SERVICES) == sorted(f"{kind}-{number}" for kind in ("store", "sentinel") for number in range(3))
    for name, service in SERVICES.items():
        assert service["volumes"] == [f"${{MADE:-../../made}}/{name}:/etc/store:ro", f"{name}:/data"]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service["user"].startswith("0")
        assert service["mem_limit"]
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
        assert "ports" not in service
