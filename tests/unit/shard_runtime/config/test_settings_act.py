"""A setting does what its page says, or is refused with the reason (CM-120)."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kip932 import store_settings
from kip932.errors import InvalidConfigError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.setting import AnySetting, ConfigType, Setting
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.config import group_extensions, kafka_configs, process_settings
from shard_runtime.config.effective_configs import EffectiveConfigs
from shard_runtime.config.kafka_configs import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from shard_runtime.config.process_settings import NODE_SETTINGS, SettingsError, load_settings

SERVICES = Path(__file__).parents[4] / "services"
DECLARED: dict[str, AnySetting] = {**NODE_SETTINGS, **BROKER_CONFIGS, **GROUP_CONFIGS, **TOPIC_CONFIGS}
UNSERVED = sorted(name for name, setting in DECLARED.items() if setting.unserved)
DLQ = "errors.deadletterqueue."


def read_by_services() -> set[str]:
    """Return the names that any file other than the declarations uses; an import is not a use."""
    found: set[str] = set()
    for path in SERVICES.rglob("*.py"):
        if path.name == "kafka_configs.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
    return found | read_of_the_store()


def read_of_the_store() -> set[str]:
    """Return the names that functions of `store_settings` use, and those in its private tuples that they use."""
    tree = ast.parse(Path(store_settings.__file__).read_text(encoding="utf-8"))
    tuples = {
        node.target.id: {one.id for one in node.value.elts if isinstance(one, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Tuple)
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = {one.id for node in functions for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found.union(*(tuples[name] for name in found & tuples.keys() if name.startswith("_")))


def test_each_setting_is_read_somewhere_or_can_only_be_left_at_its_default() -> None:
    read = read_by_services()
    constants = {
        value.name: name
        for module in (kafka_configs, process_settings, group_extensions, store_settings)
        for name, value in vars(module).items()
        if isinstance(value, Setting) and not name.startswith("_")
    }
    assert constants.keys() == DECLARED.keys() - set(UNSERVED), "exactly the served settings have constants"
    idle = {name for name, constant in constants.items() if constant not in read and len(DECLARED[name].choices) != 1}
    assert idle == set(), "no code reads it: read it, or declare it as unserved with the reason"


def other_value(setting: AnySetting) -> str:
    """A well-formed value other than the default."""
    match setting.type:
        case ConfigType.BOOLEAN:
            return "false" if setting.default else "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            assert isinstance(setting.default, int)
            return str(setting.default + 1)
        case ConfigType.LIST:
            return "classic"
        case _:
            return "letters"


@pytest.mark.rule("CM-120")
@pytest.mark.parametrize("name", [name for name in UNSERVED if name in BROKER_CONFIGS])
def test_a_process_does_not_start_with_a_setting_that_would_have_no_effect(name: str) -> None:
    setting: Any = DECLARED[name]
    with pytest.raises(SettingsError) as refused:
        load_settings({name: other_value(setting)})
    assert setting.unserved in str(refused.value)
    assert "its default" in str(refused.value)
    assert load_settings({name: setting.text(setting.default)})[name] == setting.default


@pytest.mark.rule("CM-120")
@pytest.mark.parametrize("name", [name for name in UNSERVED if DECLARED[name].dynamic])
def test_what_would_have_no_effect_is_refused_when_it_is_set_and_tolerated_where_it_is_stored(name: str) -> None:
    setting: Any = DECLARED[name]
    kinds = ((BROKER_CONFIGS, RESOURCE_BROKER), (GROUP_CONFIGS, RESOURCE_GROUP), (TOPIC_CONFIGS, RESOURCE_TOPIC))
    (kind,) = [kind for table, kind in kinds if name in table]
    effective = EffectiveConfigs(load_settings({}), SimpleNamespace(image=MetadataImage()), lambda: 1)
    with pytest.raises(InvalidConfigError, match=name):
        effective.check(kind, {name: other_value(setting)}, frozenset({name}))
    effective.check(kind, {name: setting.text(setting.default)}, frozenset({name}))
    effective.check(kind, {name: other_value(setting)}, frozenset())


@pytest.mark.rule("CM-120", "GC-8", "PL-902")
def test_dead_letter_settings_are_served_and_the_version_announces_them() -> None:
    dead_letter = {name for name in DECLARED if DLQ in name}
    assert len(dead_letter) == 7
    assert not dead_letter & set(UNSERVED)
    assert BROKER_CONFIGS["share.version"].default == 2
    with pytest.raises(SettingsError, match=re.escape("share.version: it must be at most 2")):
        load_settings({"share.version": "3"})
    assert load_settings({"share.version": "1"})["share.version"] == 1


def test_the_page_of_settings_says_which_can_only_be_left_alone() -> None:
    setting: Any = DECLARED["group.coordinator.threads"]
    assert setting.range_text == "only 4"
    assert "Only its default can be set: one event loop serves." in setting.doc
