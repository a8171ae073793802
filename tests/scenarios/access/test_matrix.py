"""The matrix: every RPC that clients call, by callers with every single permission, with pairs, patterns and
denials. The expected responses are those of the table of CM-61, as written down in the questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest

from shard_runtime.rpc.table import RPCS, Port
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access import asks_cluster, asks_groups, asks_leader
from tests.scenarios.access.ask import Ask
from tests.scenarios.access.cases import cases, expected, of_all
from tests.scenarios.access.stage import OPEN, Stage, play

#: All questions, by name.
QUESTIONS: Final[dict[str, type[Ask]]] = {
    **asks_cluster.QUESTIONS,
    **asks_groups.QUESTIONS,
    **asks_leader.QUESTIONS,
}
#: Fields that disclose a topic's content.
_CONTENT: Final = frozenset({"records", "acquired_records"})


def served(ask: type[Ask]) -> bool:
    """Return whether the RPC of a question is served to clients."""
    return bool(RPCS[METHODS[ask.rpc].path].ports & Port.CLIENTS)


async def wrong_answers(stage: Stage, ask: Ask) -> list[str]:
    """Send the request as every caller; return the responses that differ from the table."""
    found = cases(ask)
    await ask.prepare(stage)
    await stage.allow(*OPEN)
    callers = [stage.caller(case.principal, case.host) for case in found]
    for number, caller in enumerate(callers):
        await ask.before(stage, caller, number)
    await stage.allow(*of_all(found))
    wrong = []
    for number, case in enumerate(found):
        answer = await callers[number].exchange(ask.rpc, await ask.request(stage, number))
        shown, wanted = ask.shown(answer), expected(ask, case)
        refused = wanted.what in {clause.without.what for clause in ask.clauses}
        if shown != wanted or (refused and has_content(answer)):
            wrong.append(f"{case.label}: {shown}, expected {wanted}")
        if not refused or wanted.what == "−1":
            await ask.after(stage, number)
    return wrong


def has_content(message: Any) -> bool:
    """Return whether a response contains records."""
    for field, value in message.ListFields():
        if field.name in _CONTENT:
            return True
        if field.message_type is not None and any(map(has_content, value if isinstance(value, Iterable) else (value,))):
            return True
    return False


@pytest.mark.parametrize("name", [name for name, ask in QUESTIONS.items() if served(ask)])
@pytest.mark.rule("CM-61", "GC-139")
def test_each_rpc_needs_what_the_table_says_and_nothing_else(name: str) -> None:
    async def story(stage: Stage) -> None:
        wrong = await wrong_answers(stage, QUESTIONS[name]())
        assert wrong == []

    play(story)
