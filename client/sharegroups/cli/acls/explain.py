"""`sharegroups acls explain`: says whether a caller may do something, and by which entry (CT-137).

It decides with the code by which the nodes decide (`kip932.acls`), from all entries and the nodes' settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kip932.acls import (
    ANY_HOST,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclRules,
    Decision,
    Operation,
    PatternType,
    ResourceType,
)
from kip932.errors import KafkaError
from kip932.ids import TOPIC_NAME_RULE, possible_topic_name
from kip932.printable import printable
from sharegroups.cli.acls.absent_names import absence_notes
from sharegroups.cli.acls.choosing import Given, Resource, named, require_resource, resource_options
from sharegroups.cli.acls.naming import SPELLINGS, Host, OperationName, Principal, document
from sharegroups.cli.acls.node_settings import NodeSettings, Settings, node_settings
from sharegroups.cli.output import (
    UsageFailure,
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin


class Question(NamedTuple):
    """May this caller do this? `host`: `*` when the caller's address is not given."""

    principal: str
    host: str
    operation: Operation
    resource: Resource

    @property
    def text(self) -> str:
        """The question as one human-readable line."""
        where = "any host" if self.host == ANY_HOST else self.host
        return f"{self.principal} from {where}: {self.operation.name} on {self.resource.type.name} {self.name!r}"

    @property
    def name(self) -> str:
        """The name of the resource."""
        return self.resource.name or ""


_NOT_ASKED: Final = (Operation.ALL,)
#: As grep and diff do: 1 is an answer, so errors have another status.
_ERROR_STATUS: Final = 2
#: How many addresses a note names.
_HOSTS_SHOWN: Final = 5


@click.command()
@click.option("--principal", required=True, type=Principal(everyone=False), help="The caller, User:NAME.")
@click.option("--host", type=Host(any_host=False), help="Address that it calls from; without it only entries for any "
              "host count.")  # fmt: skip
@click.option("--operation", "operations", multiple=True, required=True, type=OperationName(but=_NOT_ASKED),
              help="Read, Write, Describe, …; repeatable, in any case.")  # fmt: skip
@resource_options(with_all=False)
@connection_options
@output_option
def explain(
    *,
    principal: str,
    host: str | None,
    operations: tuple[Operation, ...],
    bootstrap_server: str,
    command_config: Path | None,
    output: str,
    **given: Any,
) -> None:
    """Explain whether a caller may do something: by which entry it is allowed or denied, or that none allows it.

    It decides as the nodes do for their clients, and changes nothing. Exit status: 0 allowed, 1 denied, at least one of
    several, 2 an error; as the entries say, also while access control is off.
    """
    questions = _questions(principal, host or ANY_HOST, operations, Given(**given))
    connection = settings(bootstrap_server, command_config)
    with failures("Explaining access", _ERROR_STATUS), open_reachable_admin(connection) as admin:
        acls = admin.describe_acls()
        found = node_settings(admin)
        known = [each for each in found.values() if isinstance(each, NodeSettings)]
        is_super_user = bool(known) and all(principal in each.super_users for each in known)
        rules = AclRules(acls, [principal] if is_super_user else [])
        asked = {question: _decided(rules, question) for question in questions}
        denied = {question: decision for question, decision in asked.items() if not decision.allowed}
        absent = absence_notes(
            admin, [question.resource for question, decision in denied.items() if decision.rule is None]
        )
    if output == "json":
        _print_json(asked, found)
    else:
        for question, decision in asked.items():
            click.echo(printable(_sentence(question, decision)))
    for note in (*_notes(principal, found), *_other_hosts(rules, acls, asked)):
        print_stderr(f"Note: {note}")
    for note in absent:
        print_stderr(note)
    for question, decision in denied.items():
        print_stderr(_remedy(question, decision, command_config))
    finish(not denied)


explain.usage_status = _ERROR_STATUS  # type: ignore[attr-defined] # read by ToolGroup


def _questions(principal: str, host: str, operations: Sequence[Operation], given: Given) -> list[Question]:
    """Return a question for each operation on each resource. Raises UsageFailure for one that cannot be."""
    require_resource(given)
    for resource in given.resources:
        if resource.name == WILDCARD:
            raise UsageFailure(f"{WILDCARD!r} means all names; expected the name of one resource")
        if resource.type is ResourceType.TOPIC and not possible_topic_name(resource.name or ""):
            raise UsageFailure(f"no topic can be named {resource.name!r}: a name has {TOPIC_NAME_RULE}")
        for operation in operations:
            if operation not in OPERATIONS[resource.type]:
                expected = ", ".join(each.name for each in OPERATIONS[resource.type])
                found = f"{operation.name} is not an operation on {resource.type.name}"
                raise UsageFailure(f"{found}; expected one of {expected}")
    return [Question(principal, host, operation, each) for each in given.resources for operation in operations]


def _sentence(question: Question, decision: Decision) -> str:
    if decision.super_user:
        return f"Allowed: {question.text}. A super user may do everything."
    if decision.rule is None:
        return f"Denied: {question.text}. No entry allows it."
    implied = decision.allowed and decision.rule.operation not in {question.operation, Operation.ALL}
    includes = f", which includes {question.operation.name}" if implied else ""
    verdict = "Allowed" if decision.allowed else "Denied"
    return f"{verdict}: {question.text}. By the entry {decision.rule.text}{includes}."


def _remedy(question: Question, decision: Decision, command_config: Path | None) -> str:
    """Return the command that takes the denial away, or that adds an entry, with the caller's file of settings."""
    file = [] if command_config is None else ["--command-config", str(command_config)]
    if decision.rule is None:
        resource = question.resource
        words = ["add", "--allow-principal", question.principal, "--operation", SPELLINGS[question.operation]]
        words += named(resource.type, question.name)
        return f"To allow it: sharegroups acls {shlex.join([*words, *file])}"
    rule = decision.rule
    words = ["remove", "--deny-principal", rule.principal, "--deny-host", rule.host]
    words += ["--operation", SPELLINGS[Operation(rule.operation)]]
    words += named(ResourceType(rule.resource_type), rule.resource_name)
    words += ["--resource-pattern-type", PatternType(rule.resource_pattern_type).name.lower()]
    return f"To remove that entry: sharegroups acls {shlex.join([*words, *file])}"


def _notes(principal: str, found: Settings) -> Iterator[str]:
    """Yield what the nodes' settings change in the decisions, and what is not known about them."""
    known = {node: each for node, each in found.items() if isinstance(each, NodeSettings)}
    off = [node for node, each in known.items() if not each.enabled]
    if off:
        where, there = ("", "") if len(off) == len(known) else (f" on {_nodes(off)}", " there")
        yield (
            f"access.control.enable is false{where}: entries have no effect{there}, and every caller may do "
            "everything, until it is turned on."
        )
    some = [node for node, each in known.items() if principal in each.super_users]
    if some and len(some) < len(known):
        yield f"{principal} is in super.users of {_nodes(some)} alone, where it may do everything."
    errors = {node: each for node, each in found.items() if isinstance(each, KafkaError)}
    if errors or not found:
        where = "" if len(errors) == len(found) else f" of {_nodes(list(errors))}"
        why = next((f" ({error.name}: {error.message.rstrip('.')})" for error in errors.values()), "")
        yield f"the super users{where} are not known{why}, and neither is whether access control is on there."


def _nodes(ids: Sequence[int]) -> str:
    return f"node {ids[0]}" if len(ids) == 1 else f"nodes {', '.join(map(str, ids))}"


def _other_hosts(rules: AclRules, acls: Sequence[Acl], asked: Mapping[Question, Decision]) -> Iterator[str]:
    """Yield a note for each question without the caller's address whose answer is another one for some addresses."""
    hosts = sorted({acl.host for acl in acls} - {ANY_HOST})
    for question, decision in asked.items():
        if question.host == ANY_HOST:
            other = [
                host for host in hosts if _decided(rules, question._replace(host=host)).allowed != decision.allowed
            ]
            if other:
                shown = ", ".join(other[:_HOSTS_SHOWN]) + (", …" if len(other) > _HOSTS_SHOWN else "")
                verdict = "denied" if decision.allowed else "allowed"
                yield f"{question.operation.name} on {question.name!r} is {verdict} from {shown}; --host says by what."


def _decided(rules: AclRules, question: Question) -> Decision:
    return rules.decide(question.principal, question.host, question.operation, question.resource.type, question.name)


def _print_json(asked: Mapping[Question, Decision], found: Settings) -> None:
    known = [each for each in found.values() if isinstance(each, NodeSettings)]
    states = {each.enabled for each in known}
    complete = bool(found) and len(known) == len(found)
    print_json(
        {
            "access_control": states.pop() if complete and len(states) == 1 else None,
            "super_users_known": complete,
            "decisions": [
                {
                    "principal": question.principal,
                    "host": question.host,
                    "operation": question.operation.name,
                    "resource_type": question.resource.type.name,
                    "resource_name": question.name,
                    "allowed": decision.allowed,
                    "super_user": decision.super_user,
                    "entry": None if decision.rule is None else document(decision.rule),
                }
                for question, decision in asked.items()
            ],
        }
    )
