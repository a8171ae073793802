"""Decides what callers may do: the one place that is asked (CM-61). An RPC's row in `rpc.table` has the operations that
it needs; its handler asks for the resources that the request names, through the call's context.

Without access control there is no `Access`, and every caller may do everything. Calls between nodes are checked as
they arrive (CM-61 (f)), so their handlers ask for nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from kip932.acls import (
    ANONYMOUS,
    ANY_HOST,
    CLUSTER_NAME,
    NAME_MAX,
    OPERATIONS,
    REFUSED_LATELY,
    Acl,
    AclRules,
    Decision,
    Operation,
    ResourceType,
)
from kip932.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from kip932.printable import printable
from kip932.remedies import ANY_TOPIC, allowing, argument, explaining
from shard_runtime.rate_limited_log import RateLimitedLog

log = structlog.get_logger(__name__)

Needs = Mapping[ResourceType, Operation]

#: The maximum number of remembered decisions. When the entries change, or there would be more, all are forgotten.
#: Decisions about names longer than entries may have are not remembered: rights are checked before a name is, and a
#: name may be as long as a request.
DECISIONS_MAX: Final = 20_000

_ERRORS: Final[dict[ResourceType, type[KafkaError]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
    ResourceType.CLUSTER: ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
}
_OPTIONS: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
}


#: How many refusals are remembered, for how long, and how many an explanation has.
RECENT_MAX: Final = 500
RECENT_S: Final = 60.0
RECENT_SHOWN_MAX: Final = 3
#: Why no command would help.
NO_ADMINISTRATOR: Final = (
    "No one may change entries on this cluster: set super.users=User:NAME on the nodes, with the common name of an "
    "administrator's certificate, and restart them"
)
#: For a caller at a port that does not ask for certificates.
NO_PRINCIPALS: Final = "this port asks no caller for a certificate"


class Asked(NamedTuple):
    """What a caller would do."""

    principal: str
    host: str
    operation: Operation
    resource: ResourceType
    name: str


#: How a caller at the port for nodes is counted, however it is known.
AT_PORT_FOR_NODES: Final = "node"


class Access:
    """The access control of one node. Nothing is allowed before `follow` was called, except to super users.

    `own_principal` returns the principal of this node's certificate: nodes with the same one are its peers. `version`
    grows whenever decisions may differ from earlier ones. `refused`: refusals by how the caller is known (an
    `Identity.kind`, or AT_PORT_FOR_NODES), operation and type of resource.
    `asks_callers`: whether the port for clients asks them for certificates.
    """

    def __init__(
        self,
        super_users: Iterable[str] = (),
        own_principal: Callable[[], str | None] = lambda: None,
        *,
        lines: RateLimitedLog | None = None,
        asks_callers: bool = True,
    ) -> None:
        self._asks_callers = asks_callers
        self.version = 0
        self.refused: Final[Counter[tuple[str, Operation, ResourceType]]] = Counter()
        self._rules = AclRules((), super_users)
        self._acls: frozenset[Acl] | None = None
        self._own_principal = own_principal
        self._lines = lines or RateLimitedLog(log)
        self._decisions: dict[Asked, Decision] = {}
        self._recent: dict[Asked, float] = {}
        self._listeners: list[Callable[[], None]] = []

    def follow(self, acls: frozenset[Acl]) -> None:
        """Decide by these entries from now on. Does nothing if they are the same object as before."""
        if acls is self._acls:
            return
        self._acls, self._rules = acls, AclRules(acls, self._rules.super_users)
        self._decisions.clear()
        self.version += 1
        for listener in self._listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the entries. It must not block or raise."""
        self._listeners.append(listener)

    def decide(self, asked: Asked) -> Decision:
        """Return whether a caller may do something, and why."""
        found = self._decisions.get(asked)
        if found is None:
            found = self._rules.decide(*asked)
            if len(asked.name) > NAME_MAX or len(asked.principal) > NAME_MAX:
                return found
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[asked] = found
        return found

    def allowed_on_any(self, asked: Asked) -> bool:
        """Return whether the caller may do the operation on at least one name that a resource of the type could have;
        the question's name does not matter."""
        return self._rules.allowed_on_any(asked.principal, asked.host, asked.operation, asked.resource)

    def may_anything(self, principal: str, host: str) -> bool:
        """Return whether the caller may do any operation on at least one name that a resource could have."""
        return any(
            self._rules.allowed_on_any(principal, host, operation, resource)
            for resource, operations in OPERATIONS.items()
            for operation in operations
        )

    def refusal(self, asked: Asked, kind: str = "", known_as: str = "") -> KafkaError | None:
        """Return the error for a caller who may not do this, and note the refusal; None if it is allowed. `kind`: how
        the caller is known. `known_as`: what the error calls a topic whose name the caller may not learn."""
        decision = self.decide(asked)
        return None if decision.allowed else self._refuse(asked, decision, kind, known_as)

    def may_write_nowhere(self, principal: str, host: str) -> str:
        """Return the text of the error for a caller that may not write to any topic. Which one it would write to is not
        known."""
        asked = Asked(principal, host, Operation.WRITE, ResourceType.TOPIC, "")
        decision = Decision(False, self._rules.denial_on_any(principal, host, asked.operation, asked.resource))
        remedy = self._remedy(asked, decision, ANY_TOPIC, f"--producer {ANY_TOPIC}")
        return f"{self._may_not(asked, 'to any topic')}. {remedy}"

    def peer_refusal(self, principal: str | None, host: str) -> KafkaError | None:
        """Return the error for a caller at the port for nodes that is not a node: it has neither this node's principal,
        nor CLUSTER_ACTION on the cluster."""
        if principal is not None and principal == self._own_principal():
            return None
        operation, resource = Operation.CLUSTER_ACTION, ResourceType.CLUSTER
        return self.refusal(Asked(principal or ANONYMOUS, host, operation, resource, CLUSTER_NAME), AT_PORT_FOR_NODES)

    @property
    def has_administrator(self) -> bool:
        """Whether there is a super user, or an entry that allows someone to change entries."""
        alter = {Operation.ALTER, Operation.ALL}
        allowed = any(
            acl.resource_type == ResourceType.CLUSTER and acl.operation in alter and acl.allows
            for acl in self._acls or ()
        )
        return bool(self._rules.super_users) or allowed

    def _refuse(self, asked: Asked, decision: Decision, kind: str, known_as: str) -> KafkaError:
        who, host, operation, resource, name = asked
        self.refused[kind, operation, resource] += 1
        self._lines.warning(
            "access_refused",
            key=(who, host, operation, resource),
            principal=who,
            kind=kind,
            host=host,
            operation=operation.name,
            resource=_described(resource, name),
            decided_by="no entry allows it" if decision.rule is None else decision.rule.text,
        )
        if len(name) <= NAME_MAX and len(who) <= NAME_MAX:
            self._recent.pop(asked, None)
            self._recent[asked] = asyncio.get_running_loop().time()
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]
        target = ANY_TOPIC if known_as else _target(resource, name)
        remedy = self._remedy(asked, decision, target, f"--operation {operation.name} {target}")
        return _ERRORS[resource](f"{self._may_not(asked, known_as)}. {remedy}")

    def _may_not(self, asked: Asked, known_as: str = "") -> str:
        known = ""
        if asked.principal == ANONYMOUS:
            known = " (a caller without a certificate)" if self._asks_callers else f" ({NO_PRINCIPALS})"
        what = known_as or _described(asked.resource, asked.name)
        return f"{printable(asked.principal)}{known} may not {asked.operation.name} {what}"

    def refused_lately(self, resources: Mapping[ResourceType, str]) -> str:
        """Return who was refused READ on one of these resources, or DESCRIBE, in the last minute at this node and still
        would be: what keeps a consumer from its records; and how to allow all that a consumer needs. "" if no one
        was."""
        since_s = asyncio.get_running_loop().time() - RECENT_S
        named = (
            _target(each, resources[each]) for each in (ResourceType.TOPIC, ResourceType.GROUP) if each in resources
        )
        needed = " ".join(("--consumer", *([] if ResourceType.TOPIC in resources else [ANY_TOPIC]), *named))
        texts = []
        for asked, when_s in reversed(self._recent.items()):
            concerns = resources.get(asked.resource) == asked.name
            if when_s < since_s or not concerns or asked.operation not in {Operation.READ, Operation.DESCRIBE}:
                continue
            decision = self.decide(asked)
            if not decision.allowed:
                remedy = self._remedy(asked, decision, _target(asked.resource, asked.name), needed)
                texts.append(f"{self._may_not(asked)}. {remedy}")
        return REFUSED_LATELY + "; ".join(texts[:RECENT_SHOWN_MAX]) + "." if texts else ""

    def _remedy(self, asked: Asked, decision: Decision, target: str, what: str) -> str:
        """Return what would allow it, and who can do that. `target`: the option that names the resource. `what`: the
        options that would grant the caller what it lacks."""
        if decision.rule is not None:
            host = asked.host if decision.rule.host != ANY_HOST else ""
            return explaining(asked.principal, host, f"--operation {asked.operation.name} {target}")
        if self._asks_callers or asked.principal != ANONYMOUS:
            return self.allowed_by(asked.principal, what)
        by_all = self._rules.allowed_on_any(ANONYMOUS, ANY_HOST, Operation.ALTER, ResourceType.CLUSTER)
        return (
            "No entry can distinguish its callers: to know who they are, set ssl.client.auth=required on the nodes, "
            f"with TLS, and restart them. {allowing(asked.principal, what) if by_all else NO_ADMINISTRATOR}"
        )

    def allowed_by(self, principal: str, what: str) -> str:
        """Return how an administrator allows a caller something. `what`: the options of the command."""
        return allowing(principal, what) if self.has_administrator else NO_ADMINISTRATOR


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}…"


def _described(resource: ResourceType, name: str) -> str:
    return "CLUSTER" if resource is ResourceType.CLUSTER else f"{resource.name} {_shortened(name)!r}"


def _target(resource: ResourceType, name: str) -> str:
    """Return the option of a command that names a resource."""
    option = _OPTIONS.get(resource)
    return "--cluster" if option is None else f"--{option} {argument(_shortened(name))}"


@dataclass(slots=True)
class Rights:
    """What one caller may do, as one RPC sees it. `needs`: the operation that the RPC needs on each type of
    resource; `kind`: how the caller is known; `has_refused`: whether anything was refused so far."""

    access: Access
    principal: str
    host: str
    needs: Needs
    kind: str = ""
    has_refused: bool = False

    def may(self, resource: ResourceType, name: str, operation: Operation | None) -> bool:
        """Return whether the operation, by default the one that the RPC needs, is allowed. Notes no refusal."""
        return self.access.decide(self._asked(resource, name, operation)).allowed

    def may_write_nowhere(self) -> str:
        """Return the text of the error for a caller that may not write to any topic."""
        return self.access.may_write_nowhere(self.principal, self.host)

    def may_on_any(self, resource: ResourceType) -> bool:
        """Return whether the operation that the RPC needs is allowed on at least one name."""
        return self.access.allowed_on_any(self._asked(resource, "", None))

    def refusal(
        self, resource: ResourceType, name: str, operation: Operation | None, known_as: str = ""
    ) -> KafkaError | None:
        """Return the error if the operation is not allowed, by default the one that the RPC needs. `known_as`: as for
        `Access.refusal`."""
        error = self.access.refusal(self._asked(resource, name, operation), self.kind, known_as)
        self.has_refused = self.has_refused or error is not None
        return error

    def _asked(self, resource: ResourceType, name: str, operation: Operation | None) -> Asked:
        return Asked(self.principal, self.host, operation or self.needs[resource], resource, name)
