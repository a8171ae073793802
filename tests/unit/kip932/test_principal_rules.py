"""Names of callers from the distinguished names of their certificates, by rules in Kafka's spelling (CM-187)."""

from __future__ import annotations

import pytest

from kip932.principal_rules import mapped, parse_rules

DN = "CN=Alice,OU=Shop,O=Example"


@pytest.mark.rule("CM-187")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("DEFAULT", "Alice"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "Alice@Shop"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:CN=(.*?),.*/$1/U, DEFAULT", "ALICE"),
        ("RULE:CN=(.*?)/$1/,DEFAULT", "Alice,OU=Shop,O=Example"),
        ("RULE:nothing/x/ , RULE:.*O=Example/all\\/of\\$them/", "all/of$them"),
        ("RULE:nothing/x/", None),
        (" DEFAULT ", "Alice"),
        ("RULE:.*//", ""),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(text: str, name: str | None) -> None:
    assert mapped(parse_rules(text), DN, "Alice") == name


@pytest.mark.rule("CM-187")
@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 1, "expected DEFAULT"),
        ("RULE:a", 6, "the pattern has no / after it"),
        ("RULE:a/b", 8, "the replacement has no / after it"),
        ("RULE:a/b/X", 10, "expected L, U, a comma"),
        ("DEFAULT DEFAULT", 8, "expected a comma"),
        ("DEFAULT,", 8, "nothing follows the comma"),
        ("RULE:a(/b/", 7, "not a regular expression"),
        ("RULE:a/$1/", 8, "names no group"),
        ("RULE:a/$/", 8, "names no group"),
        ("rule:a/b/", 1, "expected DEFAULT"),
    ],
)
def test_a_fault_in_the_rules_is_named_with_its_position(text: str, at: int, said: str) -> None:
    with pytest.raises(ValueError, match=f"at character {at} ") as fault:
        parse_rules(text)
    assert said in str(fault.value)


@pytest.mark.rule("CM-187")
def test_default_does_not_match_a_certificate_without_a_name() -> None:
    assert mapped(parse_rules("DEFAULT, RULE:(.*)/by $1/"), "O=Example", None) == "by O=Example"
