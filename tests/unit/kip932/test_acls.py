"""Access control entries: what they allow and deny, as observed on Kafka, which filters match them, and which are
refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.acls import (
    CLUSTER_NAME,
    NAME_MAX,
    OPERATIONS,
    Acl,
    AclFilter,
    AclRules,
    Decision,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    refused_binding,
    refused_filter,
)

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.ALL, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
    Operation.DESCRIBE,
)  # fmt: skip
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
LITERAL, PREFIXED, MATCH, ANY = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY
ALICE, HOST = "User:alice", "10.0.0.7"


def rule(
    operation: Operation, kind: ResourceType, name: str, pattern: PatternType = LITERAL, *, who: str = ALICE,
    host: str = "*", permission: Permission = Permission.ALLOW,
) -> Acl:  # fmt: skip
    return Acl(kind, name, pattern, who, host, operation, permission)


def deny(
    operation: Operation, kind: ResourceType, name: str, pattern: PatternType = LITERAL, *, who: str = ALICE,
    host: str = "*",
) -> Acl:  # fmt: skip
    return rule(operation, kind, name, pattern, who=who, host=host, permission=Permission.DENY)


def allowed(acls: list[Acl], kind: ResourceType, name: str) -> set[Operation]:
    rules = AclRules(acls)
    return {each for each in OPERATIONS[kind] if rules.decide(ALICE, HOST, each, kind, name).allowed}


# ---- which operation implies which

NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: CLUSTER_NAME, TRANSACTIONAL_ID: "x"}
IMPLIED = {operation: {DESCRIBE} for operation in (READ, WRITE, DELETE, ALTER)} | {ALTER_CONFIGS: {DESCRIBE_CONFIGS}}


@pytest.mark.rule("GC-148", "CM-61")
@pytest.mark.parametrize(
    ("kind", "operation"), [(kind, operation) for kind, usable in OPERATIONS.items() for operation in usable]
)
def test_an_operation_that_is_allowed_includes_only_what_it_implies_and_only_on_its_resource(
    kind: ResourceType, operation: Operation
) -> None:
    acls = [rule(operation, kind, NAMES[kind])]
    assert allowed(acls, kind, NAMES[kind]) == ({operation} | IMPLIED.get(operation, set())) & {*OPERATIONS[kind]}
    assert allowed(acls, kind, "another") == set()
    assert not any(allowed(acls, other, NAMES[other]) for other in OPERATIONS if other is not kind)


@pytest.mark.rule("GC-148", "CM-61")
@pytest.mark.parametrize("kind", OPERATIONS)
def test_all_is_every_operation_on_its_resource_and_none_on_another(kind: ResourceType) -> None:
    acls = [rule(ALL, kind, NAMES[kind])]
    assert allowed(acls, kind, NAMES[kind]) == {*OPERATIONS[kind]}
    assert allowed(acls, kind, "another") == set()
    assert not any(allowed(acls, other, NAMES[other]) for other in OPERATIONS if other is not kind)


@pytest.mark.rule("CM-61")
def test_nothing_is_allowed_without_an_entry_except_to_a_super_user() -> None:
    assert AclRules([]).decide(ALICE, HOST, READ, GROUP, "g") == Decision(False)
    denied = AclRules([deny(ALL, GROUP, "*")], super_users=[ALICE])
    assert denied.decide(ALICE, HOST, READ, GROUP, "g") == Decision(True, super_user=True)
    assert denied.allowed_on_any(ALICE, HOST, READ, GROUP)
    assert not denied.decide("User:bob", HOST, READ, GROUP, "g").allowed


@pytest.mark.rule("GC-148")
@pytest.mark.parametrize(
    ("kind", "acls", "bits"),
    [
        (GROUP, [rule(READ, GROUP, "g")], 264),
        (GROUP, [rule(DESCRIBE, GROUP, "g")], 256),
        (GROUP, [rule(DELETE, GROUP, "g")], 320),
        (GROUP, [rule(ALL, GROUP, "g")], 3400),
        (GROUP, [rule(READ, GROUP, "g"), deny(READ, GROUP, "g")], 256),
        (TOPIC, [rule(ALL, TOPIC, "t")], 0b1101_1111_1000),
    ],
)
def test_the_operations_of_a_resource_are_the_bits_that_kafka_reports(
    kind: ResourceType, acls: list[Acl], bits: int
) -> None:
    assert sum(1 << operation for operation in allowed(acls, kind, NAMES[kind])) == bits


# ---- deny, patterns, wildcards

NONE, GAF, TAF = "NONE", "GAF", "TAF"
GROUP_RULE, TOPIC_RULE = rule(READ, GROUP, "pg-1"), rule(READ, TOPIC, "a")
BASE = [GROUP_RULE, TOPIC_RULE]


def answers(rules: AclRules) -> tuple[str, str, str]:
    """What a heartbeat with topic names, a fetch and a description of the group return."""

    def may(operation: Operation, kind: ResourceType, name: str) -> bool:
        return rules.decide(ALICE, HOST, operation, kind, name).allowed

    def of(operation: Operation) -> str:
        return GAF if not may(READ, GROUP, "pg-1") else NONE if may(operation, TOPIC, "a") else TAF

    return of(DESCRIBE), of(READ), NONE if may(DESCRIBE, GROUP, "pg-1") else GAF


@pytest.mark.rule("GC-148", "CM-61")
@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        pytest.param(BASE, (NONE, NONE, NONE), id="base"),
        *(
            pytest.param([changed, TOPIC_RULE], (NONE, NONE, NONE), id=id_)
            for id_, changed in {
                "prefix": rule(READ, GROUP, "pg-", PREFIXED),
                "prefix that is the full name": rule(READ, GROUP, "pg-1", PREFIXED),
                "all names": rule(READ, GROUP, "*"),
                "every principal": rule(READ, GROUP, "pg-1", who="User:*"),
            }.items()
        ),
        *(
            pytest.param([changed, TOPIC_RULE], (GAF, GAF, GAF), id=id_)
            for id_, changed in {
                "an asterisk as a prefix": rule(READ, GROUP, "*", PREFIXED),
                "a literal name that is a prefix": rule(READ, GROUP, "pg-"),
                "another host only": rule(READ, GROUP, "pg-1", host="10.0.0.8"),
                "another principal only": rule(READ, GROUP, "pg-1", who="User:bob"),
            }.items()
        ),
        *(
            pytest.param([*BASE, denial], (GAF, GAF, NONE), id=id_)
            for id_, denial in {
                "READ denied": deny(READ, GROUP, "pg-1"),
                "READ denied on all names": deny(READ, GROUP, "*"),
                "READ denied on a prefix": deny(READ, GROUP, "p", PREFIXED),
                "READ denied to every principal": deny(READ, GROUP, "pg-1", who="User:*"),
                "READ denied from the caller's host": deny(READ, GROUP, "pg-1", host=HOST),
            }.items()
        ),
        pytest.param(
            [rule(ALL, GROUP, "*"), TOPIC_RULE, deny(READ, GROUP, "pg-1")], (GAF, GAF, NONE), id="ALL, but not READ"
        ),
        pytest.param([*BASE, deny(DESCRIBE, GROUP, "pg-1")], (NONE, NONE, GAF), id="DESCRIBE denied"),
        pytest.param([*BASE, deny(ALL, GROUP, "pg-1")], (GAF, GAF, GAF), id="ALL denied"),
        pytest.param([*BASE, deny(DESCRIBE, TOPIC, "a")], (TAF, NONE, NONE), id="DESCRIBE of the topic denied"),
        pytest.param([*BASE, deny(READ, TOPIC, "a")], (NONE, TAF, NONE), id="READ of the topic denied"),
        pytest.param([*BASE, deny(WRITE, TOPIC, "a")], (NONE, NONE, NONE), id="WRITE of the topic denied"),
        pytest.param([*BASE, deny(READ, GROUP, "pg-1", host="10.0.0.8")], (NONE, NONE, NONE), id="other host denied"),
        pytest.param([*BASE, deny(READ, GROUP, "pg-1", who="User:bob")], (NONE, NONE, NONE), id="other user denied"),
    ],
)
def test_a_denial_beats_every_permission_and_includes_nothing(acls: list[Acl], expected: tuple[str, str, str]) -> None:
    assert answers(AclRules(acls)) == expected


@pytest.mark.rule("CM-61")
def test_a_super_user_is_affected_by_no_denial() -> None:
    assert answers(AclRules([deny(ALL, GROUP, "*"), deny(ALL, TOPIC, "*")], [ALICE])) == (NONE, NONE, NONE)


@pytest.mark.rule("GC-148", "CM-61")
def test_a_denial_on_a_group_leaves_what_is_allowed_on_the_cluster() -> None:
    rules = AclRules([rule(DESCRIBE, CLUSTER, CLUSTER_NAME), deny(DESCRIBE, GROUP, "*")])
    assert rules.decide(ALICE, HOST, DESCRIBE, CLUSTER, CLUSTER_NAME).allowed
    assert not rules.decide(ALICE, HOST, DESCRIBE, GROUP, "pg-1").allowed


@pytest.mark.rule("CM-61")
def test_a_decision_names_the_entry_that_decided() -> None:
    denial = deny(READ, GROUP, "p", PREFIXED, who="User:*")
    assert AclRules(BASE).decide(ALICE, HOST, DESCRIBE, GROUP, "pg-1") == Decision(True, GROUP_RULE)
    assert AclRules([*BASE, denial]).decide(ALICE, HOST, READ, GROUP, "pg-1") == Decision(False, denial)
    assert AclRules(BASE).decide(ALICE, HOST, WRITE, TOPIC, "a") == Decision(False)


# ---- allowed on at least one resource


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([rule(WRITE, TOPIC, "a")], True),
        ([rule(ALL, TOPIC, "*")], True),
        ([rule(WRITE, TOPIC, "a", PREFIXED, who="User:*")], True),
        ([rule(READ, TOPIC, "a")], False),
        ([rule(WRITE, TRANSACTIONAL_ID, "a")], False),
        ([rule(WRITE, TOPIC, "a", who="User:bob")], False),
        ([rule(WRITE, TOPIC, "a", host="10.0.0.8")], False),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "*")], False),
        ([rule(WRITE, TOPIC, "*"), deny(ALL, TOPIC, "*", who="User:*")], False),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "a")], False),
        ([rule(WRITE, TOPIC, "ab"), deny(WRITE, TOPIC, "a", PREFIXED)], False),
        ([rule(WRITE, TOPIC, "ab", PREFIXED), deny(WRITE, TOPIC, "a", PREFIXED)], False),
        ([rule(WRITE, TOPIC, "ab", PREFIXED), deny(WRITE, TOPIC, "ab", PREFIXED)], False),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "ab")], True),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "ab", PREFIXED)], True),
        ([rule(WRITE, TOPIC, "a", PREFIXED), deny(WRITE, TOPIC, "ab", PREFIXED)], True),
        ([rule(WRITE, TOPIC, "a", PREFIXED), deny(WRITE, TOPIC, "a")], True),
        ([rule(WRITE, TOPIC, "*"), deny(WRITE, TOPIC, "a", PREFIXED)], True),
        ([rule(WRITE, TOPIC, "*"), deny(WRITE, TOPIC, "*", PREFIXED)], True),
        ([rule(WRITE, TOPIC, "a"), rule(WRITE, TOPIC, "b"), deny(WRITE, TOPIC, "a")], True),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "*", who="User:bob")], True),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "*", host="10.0.0.8")], True),
        ([rule(WRITE, TOPIC, "a"), deny(READ, TOPIC, "*")], True),
    ],
)
def test_an_operation_is_allowed_on_any_topic_unless_denials_cover_all_that_entries_allow(
    acls: list[Acl], expected: bool
) -> None:
    assert AclRules(acls).allowed_on_any(ALICE, HOST, WRITE, TOPIC) is expected


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    ("acls", "by"),
    [
        ([], None),
        ([rule(WRITE, TOPIC, "a")], None),
        ([deny(WRITE, TOPIC, "a")], None),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "b")], None),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "a")], 1),
        ([rule(WRITE, TOPIC, "a"), deny(WRITE, TOPIC, "*"), deny(WRITE, TOPIC, "a", host=HOST)], 2),
    ],
)
def test_a_denial_is_the_reason_only_if_entries_allow_the_operation_and_denials_cover_all_that_they_do(
    acls: list[Acl], by: int | None
) -> None:
    found = AclRules(acls).denial_on_any(ALICE, HOST, WRITE, TOPIC)
    assert found == (None if by is None else acls[by])


# ---- for all entries

ENTRIES = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.text("ab*", min_size=1, max_size=2),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([ALICE, "User:bob", "User:*"]),
    st.sampled_from([HOST, "10.0.0.8", "*"]),
    st.sampled_from([ALL, READ, DESCRIBE, ALTER_CONFIGS, DESCRIBE_CONFIGS]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
ASKED = st.sampled_from([READ, WRITE, DESCRIBE, ALTER_CONFIGS, DESCRIBE_CONFIGS])


def naive(acls: list[Acl], host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
    """Decide for Alice by comparing each entry with each part of the call."""
    permitted = False
    for acl in acls:
        if acl.resource_pattern_type == PREFIXED:
            about = name[: len(acl.resource_name)] == acl.resource_name
        else:
            about = acl.resource_name in ("*", name)
        about = about and acl.resource_type == kind
        if not about or acl.principal == "User:bob" or acl.host not in ("*", host):
            continue
        same = acl.operation in (ALL, operation)
        if acl.permission_type == Permission.DENY and same:
            return False
        implied = (operation == DESCRIBE and acl.operation in (READ, WRITE, DELETE, ALTER)) or (
            operation == DESCRIBE_CONFIGS and acl.operation == ALTER_CONFIGS
        )
        if acl.permission_type == Permission.ALLOW and (same or implied):
            permitted = True
    return permitted


@pytest.mark.rule("GC-148", "CM-61")
@given(
    st.lists(ENTRIES, max_size=8), st.sampled_from([HOST, "::1"]), ASKED, st.sampled_from([TOPIC, GROUP]),
    st.text("ab*", min_size=1, max_size=3),
)  # fmt: skip
def test_decisions_are_those_of_comparing_every_entry(
    acls: list[Acl], host: str, operation: Operation, kind: ResourceType, name: str
) -> None:
    decision = AclRules(acls).decide(ALICE, host, operation, kind, name)
    assert decision.allowed == naive(acls, host, operation, kind, name)
    if decision.rule is not None:
        assert decision.rule in acls
        assert decision.rule.covers(name)
        assert (decision.rule.permission_type == Permission.ALLOW) == decision.allowed


#: Names that are longer than those of entries, and with a character that no entry has.
SOME_NAMES = ["".join(each) for size in (1, 2, 3) for each in itertools.product("ab*z", repeat=size)]


@pytest.mark.rule("CM-61")
@given(st.lists(ENTRIES, max_size=8), ASKED)
def test_allowed_on_any_means_that_there_is_a_name_on_which_it_is_allowed(
    acls: list[Acl], operation: Operation
) -> None:
    there_is = any(naive(acls, HOST, operation, TOPIC, name) for name in SOME_NAMES)
    assert AclRules(acls).allowed_on_any(ALICE, HOST, operation, TOPIC) == there_is


# ---- filters

ENTRY = rule(READ, TOPIC, "orders", host=HOST)


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(), True),
        (AclFilter(TOPIC, "orders", LITERAL, ALICE, HOST, READ, Permission.ALLOW), True),
        (AclFilter(resource_type=GROUP), False),
        (AclFilter(resource_name="order"), False),
        (AclFilter(resource_pattern_type=PREFIXED), False),
        (AclFilter(resource_name="orders", resource_pattern_type=PREFIXED), False),
        (AclFilter(principal="User:*"), False),
        (AclFilter(principal=""), False),
        (AclFilter(host="*"), False),
        (AclFilter(operation=ALL), False),
        (AclFilter(operation=DESCRIBE), False),
        (AclFilter(permission_type=Permission.DENY), False),
    ],
)
def test_a_filter_matches_an_entry_that_is_equal_in_all_it_names(wanted: AclFilter, expected: bool) -> None:
    assert wanted.matches(ENTRY) is expected


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (ANY, {("pg-", LITERAL), ("pg-", PREFIXED)}),
        (LITERAL, {("pg-", LITERAL)}),
        (PREFIXED, {("pg-", PREFIXED)}),
        (MATCH, {("pg-", LITERAL), ("pg-", PREFIXED), ("p", PREFIXED), ("*", LITERAL)}),
    ],
)
def test_the_pattern_type_of_a_filter_decides_how_its_name_is_compared(
    pattern: PatternType, matching: set[tuple[str, PatternType]]
) -> None:
    entries = [
        rule(READ, GROUP, name, kind)
        for name in ("p", "pg-", "pg-1", "*")
        for kind in (LITERAL, PREFIXED)
    ]  # fmt: skip
    wanted = AclFilter(resource_name="pg-", resource_pattern_type=pattern)
    found = [each for each in entries if wanted.matches(each)]
    assert {(each.resource_name, each.resource_pattern_type) for each in found} == matching


@pytest.mark.rule("CM-61", "CM-111")
@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({}, ""),
        ({"resource_pattern_type": MATCH, "resource_name": "a"}, ""),
        ({"resource_type": 9}, "resource type 9 is not known; expected one of 1 ANY, 2 TOPIC, 3 GROUP"),
        ({"resource_type": 0}, "the resource type is not set; expected one of 1 ANY"),
        ({"resource_pattern_type": 0}, "the pattern type is not set; expected one of 1 ANY, 2 MATCH"),
        ({"operation": 0}, "the operation is not set"),
        ({"operation": 99}, "operation 99 is not known"),
        ({"permission_type": 0}, "the permission type is not set; expected one of 1 ANY, 2 DENY, 3 ALLOW"),
        ({"permission_type": -1}, "permission type -1 is not known"),
        ({"resource_pattern_type": MATCH}, "pattern type 2 MATCH needs a resource name"),
    ],
)
def test_a_filter_with_a_number_that_is_unknown_or_not_set_is_refused(changes: dict[str, object], refusal: str) -> None:
    said = refused_filter(AclFilter()._replace(**changes))  # type: ignore[arg-type]
    assert said.startswith(refusal)
    assert bool(said) == bool(refusal)


# ---- entries that cannot be added


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_entry_with_an_operation_of_its_resource_can_be_added_and_no_other(kind: ResourceType) -> None:
    usable = {ALL, *OPERATIONS[kind]}
    refused = {
        each for each in Operation if refused_binding(rule(each, kind, NAMES[kind])) and each is not Operation.ANY
    }
    assert refused == {*Operation} - usable - {Operation.ANY}
    for each in refused:
        said = refused_binding(rule(each, kind, NAMES[kind]))
        assert said.startswith(f"{each.name} is not an operation on {kind.name}; expected one of ALL, ")


@pytest.mark.rule("CM-61", "CM-62")
@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"resource_type": 1}, "resource type 1 is not known; expected one of 2 TOPIC, 3 GROUP, 4 CLUSTER, 5 TRANS"),
        ({"resource_type": 6}, "resource type 6 is not known"),
        ({"resource_type": 0}, "the resource type is not set; expected one of 2 TOPIC"),
        ({"resource_pattern_type": 1}, "pattern type 1 is not known; expected one of 3 LITERAL, 4 PREFIXED"),
        ({"resource_pattern_type": 2}, "pattern type 2 is not known"),
        ({"operation": 1}, "operation 1 is not known; expected one of 2 ALL"),
        ({"operation": 13}, "operation 13 is not known"),
        ({"permission_type": 1}, "permission type 1 is not known; expected one of 2 DENY, 3 ALLOW"),
        ({"permission_type": 0}, "the permission type is not set"),
        ({"resource_name": ""}, "the resource name is empty"),
        ({"resource_name": "x" * (NAME_MAX + 1)}, "the resource name has 291 characters; at most 290"),
        ({"resource_type": CLUSTER, "operation": ALTER}, "the name of the resource CLUSTER is 'orders'"),
        (
            {"resource_type": CLUSTER, "operation": ALTER, "resource_name": CLUSTER_NAME,
             "resource_pattern_type": PREFIXED},
            "the name of the resource CLUSTER is 'kafka-cluster'; expected kafka-cluster, literal",
        ),
        *(
            ({"principal": principal}, "the principal is ")
            for principal in ("", "alice", "User", "User:", "Group:alice", "user:alice", f"User:{'x' * NAME_MAX}")
        ),
        *(
            ({"host": host}, "the host is ")
            for host in ("", "db.example.org", "10.0.0", "10.0.0.0/8", "10.0.0.07", "[::1]", "fe80::1%eth0", "1" * 300)
        ),
        ({"host": "2001:DB8:0::1"}, "the host is '2001:DB8:0::1'; write it as 2001:db8::1, as connections show it"),
        ({"host": "::ffff:10.0.0.7"}, "the host is '::ffff:10.0.0.7'; write it as 10.0.0.7"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_added_is_refused_with_what_is_expected(
    changes: dict[str, object], refusal: str
) -> None:
    said = refused_binding(ENTRY._replace(**changes))  # type: ignore[arg-type]
    assert said.startswith(refusal), said
    assert len(said) < 2 * NAME_MAX


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    "acl",
    [
        ENTRY,
        rule(ALL, GROUP, "*", who="User:*", host="*"),
        rule(READ, TOPIC, "*", PREFIXED, host="2001:db8::1"),
        rule(READ, GROUP, "ü" * NAME_MAX, who="User:CN=a, O=b"),
        deny(ALTER, CLUSTER, CLUSTER_NAME),
    ],
)
def test_entries_that_can_be_added(acl: Acl) -> None:
    assert refused_binding(acl) == ""


@pytest.mark.rule("CM-61")
def test_an_entry_reads_as_one_line() -> None:
    assert ENTRY.text == "ALLOW User:alice from 10.0.0.7: READ on TOPIC 'orders'"
    assert deny(ALL, GROUP, "a\n", PREFIXED).text == "DENY User:alice from *: ALL on GROUP prefix 'a\\n'"
    assert Acl(9, "x", 3, ALICE, "*", 99, 7).text == "7 User:alice from *: 99 on 9 'x'"
