"""How a node decides what a caller may do: cached decisions, refusals, and peers."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from kip932.acls import ANONYMOUS, Acl, Operation, PatternType, Permission, ResourceType
from kip932.errors import ClusterAuthorizationFailedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError
from shard_runtime.rpc import access as module
from shard_runtime.rpc.access import Access, Asked, Rights

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, DESCRIBE, WRITE = Operation.READ, Operation.DESCRIBE, Operation.WRITE


def entry(
    operation: Operation = READ,
    resource: ResourceType = TOPIC,
    name: str = "t",
    who: str = "User:a",
    deny: bool = False,
) -> Acl:
    permission = Permission.DENY if deny else Permission.ALLOW
    return Acl(resource, name, PatternType.LITERAL, who, "*", operation, permission)


def asked(operation: Operation = READ, resource: ResourceType = TOPIC, name: str = "t", who: str = "User:a") -> Asked:
    return Asked(who, "10.0.0.7", operation, resource, name)


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """The rate-limited log needs a running loop."""

    async def nothing() -> None:
        pass

    with asyncio.Runner() as runner:
        runner.run(nothing())
        asyncio.events._set_running_loop(runner.get_loop())
        yield
        asyncio.events._set_running_loop(None)


@pytest.mark.rule("CM-61")
def test_nothing_is_allowed_before_the_entries_are_known_except_to_super_users() -> None:
    access = Access(["User:root"])
    assert access.refusal(asked()) is not None
    assert access.refusal(asked(who="User:root")) is None
    access.follow(frozenset({entry()}))
    assert access.refusal(asked()) is None


@pytest.mark.rule("CM-61")
def test_a_change_of_the_entries_forgets_decisions_and_is_passed_on_once() -> None:
    access, heard = Access(), []
    access.subscribe(lambda: heard.append(access.version))
    first = frozenset({entry()})
    access.follow(first)
    assert access.decide(asked()).allowed
    access.follow(first)
    access.follow(frozenset({entry(), entry(deny=True)}))
    assert not access.decide(asked()).allowed
    assert heard == [1, 2]


@pytest.mark.rule("CM-61")
def test_remembered_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    access = Access()
    access.follow(frozenset({entry(name="*")}))
    for number in range(25):
        assert access.decide(asked(name=f"t{number}")).allowed
    assert len(access._decisions) == 5


@pytest.mark.rule("CM-61", "CM-62")
def test_a_name_as_long_as_a_request_is_decided_but_kept_nowhere() -> None:
    access = Access()
    access.follow(frozenset({entry(name="x", who="User:b")}))
    name = "x" * 1_000_000
    with capture_logs() as lines:
        error = access.refusal(asked(name=name))
    assert error is not None
    assert len(error.message) < 1_000
    assert not access._decisions
    assert len(lines[0]["resource"]) < 400
    prefix = entry()._replace(resource_name="x", resource_pattern_type=PatternType.PREFIXED)
    access.follow(frozenset({prefix}))
    assert access.refusal(asked(name=name)) is None


@pytest.mark.rule("CM-61")
def test_the_command_that_a_refusal_proposes_is_one_command_whatever_the_names_are() -> None:
    access = Access(["User:root"])
    name, who = "g; rm -rf ~ #\x1b[2J", "User:a b"
    error = access.refusal(asked(READ, GROUP, name, who))
    assert error is not None
    assert "\x1b" not in error.message
    _, _, command = error.message.partition("An administrator can allow it: ")
    assert shlex.split(command) == [
        *("sharegroups", "acls", "add", "--allow-principal", who),
        *("--operation", "READ", "--group", "g; rm -rf ~ #\\x1b[2J", "--command-config", "FILE"),
    ]


@pytest.mark.rule("CM-61", "CM-206")
def test_a_refusal_names_who_what_and_how_to_allow_it_and_is_logged_and_counted() -> None:
    access = Access(["User:root"])
    access.follow(frozenset({entry(WRITE, who="User:b", deny=True)}))
    with capture_logs() as lines:
        first = access.refusal(asked(READ, GROUP, "g"), "certificate")
        access.refusal(asked(READ, GROUP, "h"), "certificate")
        denied = access.refusal(asked(WRITE, who="User:b"), "token")
        anonymous = access.refusal(asked(DESCRIBE, CLUSTER, "kafka-cluster", ANONYMOUS), "anonymous")
    assert isinstance(first, GroupAuthorizationFailedError)
    assert first.message == (
        "User:a may not READ GROUP 'g'. "
        "An administrator can allow it: "
        "sharegroups acls add --allow-principal User:a --operation READ --group g --command-config FILE"
    )
    assert isinstance(denied, TopicAuthorizationFailedError)
    assert denied.message == (
        "User:b may not WRITE TOPIC 't'. An entry denies it, whatever other entries allow. An administrator can see "
        "which one, and how to remove it: sharegroups acls explain --principal User:b --operation WRITE --topic t "
        "--command-config FILE"
    )
    assert isinstance(anonymous, ClusterAuthorizationFailedError)
    assert "without a certificate" in anonymous.message
    assert anonymous.message.endswith("--cluster --command-config FILE")
    assert [(line["principal"], line["resource"]) for line in lines] == [  # one line for READ on groups by User:a
        ("User:a", "GROUP 'g'"),
        ("User:b", "TOPIC 't'"),
        (ANONYMOUS, "CLUSTER"),
    ]
    assert lines[1]["decided_by"] == "DENY User:b from *: WRITE on TOPIC 't'"
    assert access.refused == {
        ("certificate", READ, GROUP): 2,
        ("token", WRITE, TOPIC): 1,
        ("anonymous", DESCRIBE, CLUSTER): 1,
    }


@pytest.mark.rule("CM-61", "CM-206")
def test_a_denial_of_one_address_is_explained_with_that_address_and_names_nothing_else_of_the_entry() -> None:
    access = Access(["User:root"])
    others = entry(WRITE, who="User:*", deny=True)._replace(
        host="10.0.0.7", resource_name="secret-", resource_pattern_type=PatternType.PREFIXED
    )
    access.follow(frozenset({others}))
    error = access.refusal(asked(WRITE, name="secret-t")._replace(host="10.0.0.7"))
    assert error is not None
    assert "explain --principal User:a --host 10.0.0.7 --operation WRITE --topic secret-t --command" in error.message
    assert "User:*" not in error.message
    assert "PREFIXED" not in error.message.upper()


@pytest.mark.rule("CM-61", "CM-206")
def test_a_refusal_by_id_has_no_name_in_its_text_and_none_in_its_command() -> None:
    access = Access(["User:root"])
    error = access.refusal(asked(READ, name="hidden"), known_as="the topic with the id X")
    assert error is not None
    assert error.message == (
        "User:a may not READ the topic with the id X. An administrator can allow it: "
        "sharegroups acls add --allow-principal User:a --operation READ --topic NAME --command-config FILE"
    )
    access.follow(frozenset({entry(READ, name="hidden", deny=True)}))
    error = access.refusal(asked(READ, name="hidden"), known_as="the topic with the id X")
    assert error is not None
    assert "hidden" not in error.message
    assert "explain --principal User:a --operation READ --topic NAME --command-config FILE" in error.message


@pytest.mark.rule("CM-61", "CM-206")
def test_a_caller_that_may_write_nowhere_learns_whether_that_is_denied_or_only_not_allowed() -> None:
    access = Access(["User:root"])
    assert access.may_write_nowhere("User:a", "10.0.0.7") == (
        "User:a may not WRITE to any topic. An administrator can allow it: "
        "sharegroups acls add --allow-principal User:a --producer --topic NAME --command-config FILE"
    )
    access.follow(frozenset({entry(WRITE, name="jobs"), entry(WRITE, name="jobs", deny=True)}))
    said = access.may_write_nowhere("User:a", "10.0.0.7")
    assert "acls add" not in said
    assert "An entry denies it" in said
    assert said.endswith("explain --principal User:a --operation WRITE --topic NAME --command-config FILE")
    assert "jobs" not in said


@pytest.mark.rule("CM-61", "CM-206")
def test_without_an_administrator_no_command_is_proposed_but_the_setting_that_makes_one() -> None:
    access = Access()
    access.follow(frozenset({entry(READ, GROUP, "g")}))
    error = access.refusal(asked(READ))
    assert error is not None
    assert error.message == (
        "User:a may not READ TOPIC 't'. No one may change entries on this cluster: set super.users=User:NAME on the "
        "nodes, with the common name of an administrator's certificate, and restart them"
    )


@pytest.mark.rule("CM-61")
def test_where_no_caller_is_asked_for_a_certificate_a_missing_one_is_no_diagnosis() -> None:
    access = Access(["User:root"], asks_callers=False)
    error = access.refusal(asked(who=ANONYMOUS))
    assert error is not None
    assert error.message == (
        "User:ANONYMOUS (this port asks no caller for a certificate) may not READ TOPIC 't'. No entry can distinguish "
        "its callers: to know who they are, set ssl.client.auth=required on the nodes, with TLS, and restart them. No "
        "one may change entries on this cluster: set super.users=User:NAME on the nodes, with the common name of an "
        "administrator's certificate, and restart them"
    )
    access = Access([ANONYMOUS], asks_callers=False)
    error = access.refusal(asked(who="User:a"))
    assert error is not None
    assert "An administrator can allow it: sharegroups acls add --allow-principal User:a" in error.message


@pytest.mark.rule("CM-61")
def test_a_peer_has_the_nodes_own_principal_or_the_right_to_act_for_the_cluster() -> None:
    own = "User:node"
    access = Access(own_principal=lambda: own)
    access.follow(frozenset({entry(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster", "User:other-node")}))
    assert access.peer_refusal("User:node", "10.0.0.7") is None
    assert access.peer_refusal("User:other-node", "10.0.0.7") is None
    assert isinstance(access.peer_refusal("User:app", "10.0.0.7"), ClusterAuthorizationFailedError)
    assert isinstance(access.peer_refusal(None, "10.0.0.7"), ClusterAuthorizationFailedError)
    own = "User:renewed"
    assert access.peer_refusal("User:node", "10.0.0.7") is not None
    assert Access().peer_refusal(None, "10.0.0.7") is not None  # a node without a common name has no peers


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(
    ("super_users", "entries", "found"),
    [
        ((), (), False),
        (("User:root",), (), True),
        ((), (entry(Operation.ALTER, CLUSTER, "kafka-cluster"),), True),
        ((), (entry(Operation.ALL, CLUSTER, "kafka-cluster"),), True),
        ((), (entry(Operation.ALTER, CLUSTER, "kafka-cluster", deny=True), entry(Operation.ALTER)), False),
    ],
)
def test_an_administrator_is_a_super_user_or_can_alter_the_cluster(
    super_users: tuple[str, ...], entries: tuple[Acl, ...], found: bool
) -> None:
    access = Access(super_users)
    access.follow(frozenset(entries))
    assert access.has_administrator is found


@pytest.mark.rule("CM-61")
def test_rights_ask_for_the_operation_of_their_rpc_or_for_another_one() -> None:
    access = Access()
    access.follow(frozenset({entry(WRITE)}))
    rights = Rights(access, "User:a", "10.0.0.7", {TOPIC: READ})
    assert not rights.may(TOPIC, "t", None)
    assert rights.may(TOPIC, "t", WRITE)
    assert not rights.may_on_any(TOPIC)
    assert Rights(access, "User:a", "10.0.0.7", {TOPIC: WRITE}).may_on_any(TOPIC)
    assert not access.refused  # questions do not count as refusals
    assert rights.refusal(TOPIC, "t", None) is not None
    assert rights.refusal(TOPIC, "t", WRITE) is None
