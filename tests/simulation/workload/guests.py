"""Members of a group with a principal of their own, and the administrator who gives and takes their rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from kip932.acls import ANY_HOST, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kip932.errors import KafkaError
from kip932.rpc.transport import TransportError
from sharegroups.aio import Admin
from tests.simulation.connection_events import PrincipalKnown
from tests.simulation.history import Administered
from tests.simulation.rights import GUEST
from tests.simulation.workload.cast import Cast, GroupRules
from tests.simulation.workload.consuming import Member
from tests.simulation.workload.manners import Ending, Manners
from tests.simulation.workload.topics import admin_of
from tests.simulation.workload.witness import Witness, error_text

#: How long rights stay as they are, in seconds.
_STAYS_S: Final = (0.3, 2.0)
_POLL_S: Final = 0.1


class Guests:
    """One guest after another in the group of these rules."""

    def __init__(self, cast: Cast, rng: Random, name: str, rules: GroupRules) -> None:
        self.name = name
        self._cast = cast
        self._world = cast.world
        self._rules = rules
        self._keeping = Random(rng.getrandbits(64))
        self._visiting = Random(rng.getrandbits(64))
        self._welcome = False

    async def work(self) -> None:
        """Give and take rights, and have a guest in the group, until the work is over."""
        if not await self._cast.topic(self._rules.topics[0]):
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep())
            tasks.create_task(self._visit())

    async def drain(self) -> None:
        """Do nothing: the group's own member drains it."""

    # ---- the administrator

    async def _keep(self) -> None:
        rng = self._keeping
        resources = [(ResourceType.GROUP, self._rules.name)]
        resources += [(ResourceType.TOPIC, topic) for topic in self._rules.topics]
        witness = Witness(self._world, self.name)
        async with admin_of(witness) as admin:
            while self._cast.working:
                await self._give(witness, admin, resources)
                self._welcome = True
                if not await self._cast.pause(rng.uniform(*_STAYS_S)):
                    return
                for resource in rng.sample(resources, rng.choice([1, 1, 1, len(resources)])):
                    await self._take(witness, admin, resource, denied=rng.random() < 0.4)
                await self._cast.pause(rng.uniform(*_STAYS_S))

    async def _give(self, witness: Witness, admin: Admin, resources: list[tuple[ResourceType, str]]) -> None:
        denials = [_denials(resource) for resource in resources]
        await self._call(witness, "DeleteAcls", "all", lambda: admin.delete_acls(denials))
        entries = [_entry(resource, Permission.ALLOW) for resource in resources]
        await self._call(witness, "CreateAcls", "all", lambda: admin.create_acls(entries))

    async def _take(self, witness: Witness, admin: Admin, resource: tuple[ResourceType, str], *, denied: bool) -> None:
        """Take one right: by an entry that denies it, or by removing the one that allows it."""
        detail = f"{resource[0].name} {resource[1]}"
        if denied:
            entry = _entry(resource, Permission.DENY)
            await self._call(witness, "CreateAcls", detail, lambda: admin.create_acls([entry]))
        else:
            entries = AclFilter(resource[0], resource[1], principal=GUEST, permission_type=Permission.ALLOW)
            await self._call(witness, "DeleteAcls", detail, lambda: admin.delete_acls([entries]))

    async def _call(self, witness: Witness, call: str, detail: str, act: Callable[[], Awaitable[Any]]) -> None:
        asked_ms, error = self._world.now_ms(), ""
        try:
            outcomes = await act()
            error = next((error_text(each) for each in outcomes.values() if isinstance(each, KafkaError)), "")
        except (KafkaError, TransportError) as problem:
            error = error_text(problem)
        witness.saw(Administered, call, GUEST, detail, error, asked_ms)

    # ---- the guests

    async def _visit(self) -> None:
        """Run one guest after another."""
        while not self._welcome and await self._cast.pause(_POLL_S):
            pass
        life, rng, group = 0, self._visiting, self._rules
        while self._cast.working:
            life += 1
            process = f"{group.name}.guest.{life}"
            drawn = Manners.draw(rng, group.explicit, group.hasty)
            manners = drawn.pressed(self._world.random(f"{process}/pressed"), self._world.shape.pressures)
            witness = Witness(self._world, process)
            with self._world.client(process):
                member = Member(self._cast, group, witness, manners, rng, principal=GUEST)
                task = asyncio.create_task(member.live())
            witness.saw(PrincipalKnown, GUEST, group.name, member.member_id)
            await asyncio.wait([task], timeout=manners.lives_s * 0.9 if manners.ending is Ending.KILLED else None)
            if not task.done():
                await self._world.kill_client(process)
                member.gone()
            if task.done() and not task.cancelled():
                task.result()
            await self._cast.pause(rng.uniform(0, group.rest_s))


def _entry(resource: tuple[ResourceType, str], permission: Permission) -> Acl:
    kind, name = resource
    return Acl(kind, name, PatternType.LITERAL, GUEST, ANY_HOST, Operation.READ, permission)


def _denials(resource: tuple[ResourceType, str]) -> AclFilter:
    return AclFilter(resource[0], resource[1], principal=GUEST, permission_type=Permission.DENY)
