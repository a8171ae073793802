"""Settings and assignors that are refused at start-up, by name (GC-57, GC-139a, GC-142)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from group_coordinator.config import ConfigError, GroupCoordinatorConfig, config_of, load_assignor
from group_coordinator.core.assignor import GroupSpec, SimpleAssignor
from group_coordinator.core.assignors import SharedAssignor
from group_coordinator.core.views import Assignment, Topic
from group_coordinator.image_topics import newest_topics
from shard_runtime.cluster.metadata import MetadataImage, TopicCreated, TopicDeleted
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import Settings

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
def test_the_built_in_ones_and_a_custom_class_are_loaded_and_the_latter_configured() -> None:
    assert isinstance(load_assignor(["simple"], {}), SimpleAssignor)
    assert isinstance(load_assignor(["shared"], {}), SharedAssignor)
    made = load_assignor([f"{HERE}:Custom"], {"a": 1})
    assert made.name == "custom"
    assert getattr(made, "configs") == {"a": 1}  # noqa: B009  # not part of the protocol


@pytest.mark.rule("GC-57", "GC-142")
@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "0 entries"),
        (["simple", "simple"], "2 entries"),
        (["range"], "expected `simple`, `shared` or `module:Class`"),
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


@pytest.mark.rule("GC-72")
def test_the_retry_interval_is_raised_to_the_commit_timeout() -> None:
    assert GroupCoordinatorConfig(initialize_retry_interval_ms=1).settings().initialize_retry_ms == 5_000


@pytest.mark.rule("GC-139a")
def test_the_process_settings_are_taken_over() -> None:
    given = {
        "group.share.max.size": 7,
        "offsets.topic.num.partitions": 3,
        "group.share.fast.first.assignment": False,
    }
    found = config_of(Settings(kafka_configs.BROKER_CONFIGS, given))
    assert (found.shards, found.max_size, found.fast_first_assignment) == (3, 7, False)
    assert config_of(Settings(kafka_configs.BROKER_CONFIGS, {})) == GroupCoordinatorConfig()


@pytest.mark.rule("CM-20", "P-13")
def test_the_images_topics_are_the_same_object_until_something_changes() -> None:
    image, sound = MetadataImage().apply(1, [TopicCreated("t", b"t" * 16, 3)]), [True]
    images = [image]
    newest = newest_topics(lambda: images[-1], lambda: sound[-1])
    view = newest()
    assert newest() is view
    assert (view.image, view.complete, view.by_name("t")) == (image, True, Topic(b"t" * 16, "t", 3))
    assert view.by_id(b"t" * 16) == Topic(b"t" * 16, "t", 3)
    sound.append(False)
    assert newest().complete is False
    images.append(image.apply(2, [TopicDeleted(b"t" * 16, "t")]))
    after = newest()
    assert (after.by_name("t"), after.by_id(b"t" * 16), after.is_deleted(b"t" * 16)) == (None, None, True)
    assert not view.is_deleted(b"t" * 16)
