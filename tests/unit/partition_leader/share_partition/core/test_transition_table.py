"""The mapping of record states is compared with the specification's table, and pairs that the table does not name are
refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from kip932.errors import InvalidRequestError
from kip932.ids import STATE_ACQUIRED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core import transitions
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.pieces import records_of
from partition_leader.share_partition.core.status import DropReason, Status
from partition_leader.share_partition.core.transitions import (
    ACKNOWLEDGE,
    COMMIT,
    DELAYED,
    ILLEGAL,
    KNOWN_CODES,
    PENDING,
    PENDING_CODES,
    STATE_MASK,
    TRANSITIONS,
    TYPE_CODES,
    IllegalTransitionError,
    TransitionTable,
    Trigger,
)
from tests.unit.partition_leader.share_partition.core.bench import Bench, one

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())
TEXT = (ROOT / "docs" / "spec" / "partition-leader.md").read_text()
STATES = {"Available": 0, "Acquired": 1, "Acknowledged": 2, "Archiving": 3, "Archived": 4}
NAMES = {number: name for name, number in STATES.items()}
BELOW_START = " while offset < SPSO"


class Row(NamedTuple):
    """A row of the table in PL-102, as printed."""

    before: str
    trigger: str
    after: str
    lock: str


def spec_rows() -> dict[str, Row]:
    cells = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in TEXT.splitlines()
        if re.match(r"\| T\d+ \|", line)
    ]
    return {rule: Row(before, trigger, after, lock) for rule, before, trigger, after, _, _, lock, *_ in cells}


ROWS = spec_rows()


def mapped(rule: str) -> list[tuple[int, Trigger, int]]:
    return [(code, trigger, to.code) for (code, trigger), to in TRANSITIONS.items() if to.rule == rule]


def states_of(after: str) -> set[int]:
    """Return the states in the column "To"; "as T5/T6/T7" means the states of all those rows."""
    found = {STATES[name] for name in re.findall(r"\b(?:" + "|".join(STATES) + r")\b", after)}
    for rule in re.findall(r"T\d+", after):
        found |= states_of(ROWS[rule].after)
    return found


def name_of(code: int) -> str:
    return "Delayed" if code == DELAYED else NAMES[code]


def all_tables() -> list[TransitionTable]:
    families = [value for value in vars(transitions).values() if isinstance(value, dict)]
    values = [*vars(transitions).values(), *(table for family in families for table in family.values())]
    values += [table for tables in ACKNOWLEDGE.values() for table in tables.values()]
    return list({table.trigger: table for table in values if isinstance(table, TransitionTable)}.values())


@pytest.mark.rule("PL-102")
def test_the_specification_has_nineteen_rows_and_two_of_them_make_records() -> None:
    assert list(ROWS) == [f"T{number}" for number in range(1, 20)]
    assert [rule for rule, row in ROWS.items() if row.before == "(uncached)"] == ["T1", "T2"]
    assert {to.rule for to in TRANSITIONS.values() if to.rule.startswith("T")} == set(ROWS) - {"T1", "T2"}


@pytest.mark.rule("PL-102", *(f"T{number}" for number in range(3, 19)))
@pytest.mark.parametrize("rule", [f"T{number}" for number in range(3, 19)])
def test_a_row_of_the_specification_is_what_the_mapping_says(rule: str) -> None:
    row, found = ROWS[rule], mapped(rule)
    assert {NAMES[code & STATE_MASK] for code, _, _ in found} == {row.before}, "a delayed record is an Available one"
    assert {code & STATE_MASK for _, _, code in found} == states_of(row.after)
    for _, trigger, code in found:
        if rule == "T14":
            reported, _, rest = trigger.partition(BELOW_START)
            cause = next(of for of in ("T12", "T13") if ROWS[of].trigger == reported)
            assert row.trigger.startswith(f"T12/T13{BELOW_START}")
            assert not rest
        else:
            cause = rule
            assert trigger.startswith(row.trigger) or row.trigger.startswith(trigger)
        # If the lock is cancelled on commit, the record is pending until its write ends.
        assert bool(code & PENDING) == (ROWS[cause].lock == "cancel on commit")


@pytest.mark.rule("PL-102", "T19")
def test_any_pending_record_goes_back_when_its_write_or_its_request_failed() -> None:
    assert (ROWS["T19"].before, ROWS["T19"].trigger) == ("any pending", "persist failed / request failed")
    triggers = {Trigger.PERSIST_FAILED, Trigger.REQUEST_FAILED}
    assert set(mapped("T19")) == {(code, trigger, STATE_ACQUIRED) for code in PENDING_CODES for trigger in triggers}


@pytest.mark.rule("PL-102")
def test_every_rule_of_the_mapping_exists() -> None:
    rules = {to.rule for to in TRANSITIONS.values() if not to.rule.startswith("T")}
    assert rules == {rule for rule in rules if f"**{rule}**" in TEXT}


@pytest.mark.scenario("S-063")
@pytest.mark.rule("PL-102")
def test_a_table_names_its_pairs_and_every_other_code_is_illegal() -> None:
    tables = all_tables()
    assert {table.trigger for table in tables} == set(Trigger)
    for table in tables:
        named = {code: to.code for (code, trigger), to in TRANSITIONS.items() if trigger is table.trigger}
        assert list(table) == [named.get(code, ILLEGAL) for code in range(256)]
    for types in TYPE_CODES.values():
        assert types[5:64] == bytes([ILLEGAL]) * 59


@pytest.mark.scenario("S-063")
@pytest.mark.rule("PL-102")
@pytest.mark.parametrize("table", all_tables(), ids=lambda table: table.trigger.name)
def test_an_absent_pair_raises_and_changes_nothing(table: TransitionTable) -> None:
    legal = next(code for code, trigger in TRANSITIONS if trigger is table.trigger)
    for code in KNOWN_CODES:
        if (code, table.trigger) in TRANSITIONS:
            continue
        state = name_of(code & ~PENDING) + " (pending)" * bool(code & PENDING)
        said = rf'^offset 17 is {re.escape(state)}, and "{re.escape(table.trigger)}" is for records'
        whole = InFlightBatch(17, 19, code, 1, member="m", deadline=9)
        tracked = InFlightBatch(10, 19, legal, 1, member="m", deadline=9)
        tracked.assign(17, bytes([code]))
        for batch, spans in ((whole, [(17, 19)]), (tracked, [(10, 19), (17, 17)])):
            for first, last in spans:
                before = list(batch.lock_runs(batch.first, batch.last))
                with pytest.raises(IllegalTransitionError, match=said) as caught:
                    batch.recode(first, last, table)
                assert (caught.value.offset, caught.value.code, caught.value.trigger) == (17, code, table.trigger)
                assert list(batch.lock_runs(batch.first, batch.last)) == before


@pytest.mark.rule("PL-102")
def test_only_what_a_span_covers_is_checked_when_many_spans_arrive_at_once() -> None:
    window = Window()
    batch = InFlightBatch(0, 5, STATE_ACQUIRED, 1, member="m", deadline=9)
    batch.assign(0, bytes([10, 1, 10, 0, 10, 1]))
    window.add(batch)
    with pytest.raises(IllegalTransitionError, match=r"^offset 3 is Available, "):
        window.settle(batch, [(0, 0), (2, 3)], COMMIT)
    window.settle(batch, [(0, 0), (2, 2), (4, 4)], COMMIT)
    assert [code for *_, code, _ in window_codes(batch)] == [2, 1, 2, 0, 2, 1]


def window_codes(batch: InFlightBatch) -> list[tuple[int, int, int, int]]:
    return [run for offset in range(batch.first, batch.last + 1) for run in batch.runs(offset, offset)]


@pytest.mark.rule("PL-102", "PL-412")
def test_a_record_in_an_impossible_state_ends_the_object_with_an_answer_to_everybody(
    contradictions: list[str],
) -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    op = bench.ack("M", (0, 4, 1))
    window = bench.core._state.window
    window.assign(next(window.walk()), 2, bytes([STATE_AVAILABLE]))
    with pytest.raises(IllegalTransitionError, match=r'^offset 2 is Available, and "write persisted"') as caught:
        bench.persisted()
    effects = bench.core.give_up(caught.value)
    fenced, dropped = one(effects, fx.Fenced), one(effects, fx.Dropped)
    assert (fenced.reason, fenced.retiring, bench.core.status) == (DropReason.ILLEGAL_TRANSITION, False, Status.FENCED)
    assert dropped.error.name == "UNKNOWN_SERVER_ERROR"
    assert "offset 2 is Available" in dropped.error.message
    assert op not in bench.replies, "the host answers what the core had taken in hand when it raised"
    assert one(effects, fx.Wake)
    assert bench.core.give_up(caught.value) == [], "it is over"
    contradictions.clear()


@pytest.mark.rule("PL-102")
def test_queued_operations_are_answered_when_the_object_is_given_up(
    contradictions: list[str],
) -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.ack("M", (0, 4, 1))
    queued = bench.ack("M", (5, 5, 1))
    error = IllegalTransitionError(3, STATE_AVAILABLE, Trigger.PERSISTED)
    replies = [effect for effect in bench.core.give_up(error) if isinstance(effect, fx.Reply)]
    assert queued in [reply.op_id for reply in replies]
    assert {reply.error.name for reply in replies if reply.error} == {"NOT_LEADER_OR_FOLLOWER"}
    contradictions.clear()


@pytest.mark.rule("T15", "PL-904")
def test_the_second_answer_of_the_dead_letter_queue_leaves_the_record_archived() -> None:
    window = Window()
    window.add(InFlightBatch(0, 0, STATE_ARCHIVING, 1))
    assert window.recode(next(window.walk()), 0, 0, transitions.DLQ_DONE)
    assert not window.recode(next(window.walk()), 0, 0, transitions.DLQ_DONE)
    assert [batch.delivery_state for batch in records_of(window.walk(), 0)] == [STATE_ARCHIVED]


@pytest.mark.rule("PL-409")
def test_an_unknown_acknowledge_type_changes_nothing() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    before = bench.records()
    op = bench.ack("M", (0, 1, 1), (2, 4, (1, 5, 1)))
    assert isinstance(bench.error(op), InvalidRequestError)
    assert bench.records() == before
    assert not bench.do(ev.Tick(bench.settings))


def test_each_code_has_its_name_in_errors_and_an_unknown_one_its_number() -> None:
    assert [transitions.code_name(state) for state in NAMES] == list(NAMES.values())
    assert [transitions.code_name(code) for code in PENDING_CODES] == [
        f"{name_of(code & ~PENDING)} (pending)" for code in PENDING_CODES
    ]
    assert transitions.code_name(DELAYED) == "Delayed"
    assert transitions.code_name(7) == "in an unknown state (code 7)"
