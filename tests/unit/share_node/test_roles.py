"""The roles of a process as `Roles` wires them: settings reach the part that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from group_coordinator.core.assignor import GroupSpec, SimpleAssignor
from group_coordinator.core.views import Assignment
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World


class Configured(SimpleAssignor):
    """A custom assignor that remembers what it was configured with."""

    def __init__(self) -> None:
        self.configs: Mapping[str, object] = {}

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configs = configs

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        return super().assign(spec)


def parts(**flags: str) -> Any:
    """The parts of a process that was started with these settings, `_` for a dot."""

    async def started() -> Any:
        world = World(1, replace(Shape.two(), flags={name.replace("_", "."): value for name, value in flags.items()}))
        await world.open()
        await world.start("a")
        found = world.processes["a"].parts
        await world.close()
        return found

    return determinism.run(1, started)


@pytest.mark.rule("GC-57")
def test_a_custom_assignor_is_given_the_broker_configs_and_no_secret() -> None:
    found = parts(group_share_assignors=f"{__name__}:Configured", group_share_max_size="17")
    configs = found._groups._assignor.configs
    assert (configs["group.share.max.size"], configs["num.partitions"]) == (17, 1)
    assert not [name for name in configs if name.startswith("store.")]


@pytest.mark.rule("GC-4", "SC-63")
def test_each_coordinator_waits_for_the_store_as_long_as_its_own_setting_says() -> None:
    found = parts(offsets_commit_timeout_ms="700", share_coordinator_write_timeout_ms="900")
    assert {host._options.write_timeout_ms for host in found._groups.hosts} == {700}
    assert found._state._dispatcher._write_timeout_ms == 900
