"""Config changes as a person types them."""

from __future__ import annotations

import pytest

from sharegroups.admin_values import OP_DELETE, AlterConfig, ConfigResource
from sharegroups.cli.config_changes import changes_of, listed, name_of, own_source
from sharegroups.cli.output import UsageFailure


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a=1", ["a=1"]),
        ("a=1, b=2", ["a=1", "b=2"]),
        ("a=[x,y],b=2", ["a=[x,y]", "b=2"]),
        ("a=[x,y],b=[z],c", ["a=[x,y]", "b=[z]", "c"]),
        ("a=1,,", ["a=1"]),
        ("", []),
    ],
)
def test_commas_part_what_stands_outside_brackets(text: str, parts: list[str]) -> None:
    assert listed([text]) == parts


def test_what_is_added_is_set_and_what_is_deleted_has_no_value() -> None:
    assert changes_of([" a = 1 ", "b=[x,y]", "c=", "d=p=q"], ["e"]) == [
        AlterConfig("a", "1"),
        AlterConfig("b", "x,y"),
        AlterConfig("c", ""),
        AlterConfig("d", "p=q"),
        AlterConfig("e", operation=OP_DELETE),
    ]


@pytest.mark.parametrize(
    ("added", "deleted", "said"),
    [
        (["a"], [], "'a' is not name=value"),
        (["=1"], [], "'=1' is not name=value"),
        ([], ["a=1"], "'a=1' has a value"),
        (["a=1", "a=2"], [], "given more than once: a"),
        (["b=1", "a=1"], ["a", "b"], "given more than once: a, b"),
    ],
)
def test_what_is_no_change_is_refused(added: list[str], deleted: list[str], said: str) -> None:
    with pytest.raises(UsageFailure, match=said):
        changes_of(added, deleted)


def test_a_resource_is_named_with_its_kind_and_has_a_source_of_its_own() -> None:
    resources = [ConfigResource.topic("t"), ConfigResource.group("g"), ConfigResource.broker("1")]
    assert [name_of(resource) for resource in resources] == ["topic 't'", "group 'g'", "broker '1'"]
    assert name_of(ConfigResource.broker()) == "the default of all brokers"
    assert [own_source(resource) for resource in [*resources, ConfigResource.broker()]] == [1, 8, 2, 3]
