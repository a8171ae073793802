"""The end of a history: if the store and the dead-letter queue respond and consumers accept, everything gets finished.

Product and model may agree and yet both be stuck. So in the end all records must be delivered, finished, and stored as
finished.
"""

from __future__ import annotations

from tests.model.leader import ACCEPT
from tests.model.pair import DifferenceError
from tests.model.schedule import MEMBERS, Schedule

ROUNDS_MAX = 400
#: After this many rounds without progress, none will follow.
QUIET_MAX = 8
ROUND_MS = 6_000  # longer than a lock and the wait in PL-621; QUIET_MAX rounds are longer than any delay
LETTERS_MS = 60_000  # longer than any pause between attempts


def drain(schedule: Schedule) -> None:
    """Finish everything (PL-1208, PL-621, INV-17)."""
    for producer in (1, 2):
        schedule.log.end_transaction(producer, abort=False)
    quiet = 0
    for _ in range(ROUNDS_MAX):
        before = _progress(schedule)
        _round(schedule)
        if schedule.pair.model.status == "gone":
            schedule.lead()
        quiet = quiet + 1 if before == _progress(schedule) else 0
        if quiet > QUIET_MAX:
            break
    records, store = schedule.pair.model.records, schedule.store
    if records.all or schedule.log.has_records_from(records.start) or store.start != records.start:
        left = {offset: (one.shown, one.count, one.holder) for offset, one in records.all.items()}
        raise DifferenceError(f"it stalls at {records.start}, stored {store.start}, in flight: {left}")
    if store.complete:
        raise DifferenceError(f"{store.complete} finished records are stored as in flight, and none is (INV-17)")
    schedule.steps += schedule.pair.steps
    schedule.pair.steps = 0


def _progress(schedule: Schedule) -> tuple[int, int, int]:
    records = schedule.pair.model.records
    return records.start, records.next_offset, schedule.store.start


def _round(schedule: Schedule) -> None:
    schedule.now += ROUND_MS
    schedule.pair.now = schedule.now
    schedule.note(schedule.pair.tick())
    _settle(schedule)
    for number, spans in schedule.post.round(schedule.now + LETTERS_MS, "up", 0.5, 0).items():
        schedule.note(schedule.pair.letters_done(number, spans))
    _settle(schedule)
    schedule.end_fetch()
    schedule.fetch()
    schedule.end_fetch()
    for member in MEMBERS:
        held = schedule.held(member)
        if held:
            schedule.ask(member, [(first, last, (ACCEPT,), (), (), "") for first, last in held])
    _settle(schedule)


def _settle(schedule: Schedule) -> None:
    """Let the store respond to everything."""
    for _ in range(20):
        model = schedule.pair.model
        if model.status == "gone":  # no operation is pending; the next leader reads the stored state
            return
        if model.unknown:
            schedule.store.read(model.generation)
            schedule.read_stored()
        elif schedule.outstanding is not None:
            schedule.write_succeeds()
        else:
            return
    raise DifferenceError("writes never end")
