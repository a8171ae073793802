"""Settings and assignors that are refused at start-up, by name (GC-57, GC-139a, GC-142)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from group_coordinator.config import ConfigError, GroupCoordinatorConfig, load_assignor
from group_coordinator.core.assignor import GroupSpec, SimpleAssignor
from group_coordinator.core.views import Assignment

HERE = __name__


class Custom:
    """A custom assignor that remembers its configs."""

    name = "custom"

    def configure(self, configs: Mapping[str, object]) -> None:
        if "bad" in configs:
            raise ValueError("bad configs")
        self.configs = configs

    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        return {member_id: {} for member_id in spec.members}


class Nameless:
    def assign(self, spec: GroupSpec) -> Mapping[str, Assignment]:
        return {member_id: {} for member_id in spec.members}


class Unmakable:
    def __init__(self) -> None:
        raise RuntimeError("no")


@pytest.mark.rule("GC-57")
def test_simple_and_a_custom_class_are_loaded_and_the_latter_configured() -> None:
    assert isinstance(load_assignor(["simple"], {}), SimpleAssignor)
    made = load_assignor([f"{HERE}:Custom"], {"a": 1})
    assert made.name == "custom"
    assert getattr(made, "configs") == {"a": 1}  # noqa: B009  # not part of the protocol


@pytest.mark.rule("GC-57", "GC-142")
@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "0 entries"),
        (["simple", "simple"], "2 entries"),
        (["range"], "expected `simple` or `module:Class`"),
        (["no.such.module:Class"], "cannot be loaded"),
        ([f"{HERE}:Missing"], "cannot be loaded"),
        ([f"{HERE}:HERE"], "expected a class"),
        ([f"{HERE}:Unmakable"], "cannot be made: no"),
        (["builtins:object"], "has no method `assign`"),
        ([f"{HERE}:Nameless"], "has no `name`"),
    ],
)
def test_what_cannot_be_an_assignor_names_the_setting(names: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        load_assignor(names, {})
    assert str(caught.value).startswith("group.share.assignors")


@pytest.mark.rule("GC-57")
def test_a_failing_configure_is_a_start_up_error() -> None:
    with pytest.raises(ConfigError, match="bad configs"):
        load_assignor([f"{HERE}:Custom"], {"bad": 1})


@pytest.mark.rule("GC-139a", "GC-72")
def test_ranges_are_checked_and_the_retry_interval_is_raised_to_the_commit_timeout() -> None:
    with pytest.raises(ConfigError, match=r"group\.share\.max\.size is 1001; expected 1 to 1000"):
        GroupCoordinatorConfig(max_size=1_001)
    with pytest.raises(ConfigError, match=r"offsets\.topic\.num\.partitions is 0; expected at least 1"):
        GroupCoordinatorConfig(offsets_topic_num_partitions=0)
    assert GroupCoordinatorConfig(initialize_retry_interval_ms=1).settings().initialize_retry_ms == 5_000
