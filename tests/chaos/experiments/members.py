"""Experiments on consumers: all are undisturbed, some join and leave, or one is paused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tests.chaos.checker import FINAL_TYPES, Place, counts_rise, place
from tests.chaos.experiments.definition import Definition, everybody_worked, works_again_after
from tests.chaos.history import Acknowledged, Configured, Delivered, Event, Fault, Produced, Unseen, now_ms
from tests.chaos.load import LoadOptions, Tail
from tests.chaos.trial import Trial

#: S-108 specifies a million records; this is scaled down to save time.
EXACT: Final = LoadOptions(partitions=3, rate=2_000, records=10_000)
#: Longer than the session timeout in the runner's settings, and much longer than the lock.
BEYOND_SESSION_S: Final = 7.5
RESTART_ROUNDS: Final = 5
#: Consumers hold their records long enough for one to be paused meanwhile; two consumers keep up with the producer.
HOLDING: Final = LoadOptions(rate=30, hold_ms=1_000)
PAUSED: Final = "SIGSTOP of a consumer"
RESUMED: Final = "SIGCONT of a consumer"


def undisturbed(trial: Trial) -> None:
    """Let all records be produced, and accepted, released or rejected, without any fault."""
    history = trial.folder / "producer.jsonl"
    trial.until(lambda: history.read_bytes().count(b"\n") >= EXACT.records, "end of producing", 60.0)


def exact_counts(events: Sequence[Event]) -> Iterator[str]:
    """S-108: exactly as many records were confirmed as were to be produced."""
    produced = {place(event) for event in events if isinstance(event, Produced)}
    if len(produced) != EXACT.records:
        yield f"S-108: {len(produced)} records were confirmed, expected {EXACT.records}"


def each_ends_once(events: Sequence[Event]) -> Iterator[str]:
    """S-108: some records were released and redelivered, and each produced record ended exactly once: by an ACCEPT or
    REJECT that got NONE, or by a release at the delivery limit."""
    limit = next((event.delivery_limit for event in events if isinstance(event, Configured)), 0)
    produced = {place(event) for event in events if isinstance(event, Produced)}
    confirmed = [event for event in events if isinstance(event, Acknowledged) and not event.error]
    ends = Counter(place(event) for event in confirmed if event.type in FINAL_TYPES or event.delivery_count >= limit)
    wrong = sorted(at for at in produced | ends.keys() if at not in produced or ends[at] != 1)
    if wrong:
        yield (
            f"S-108: {len(wrong)} of {len(produced)} records did not end exactly once; "
            f"{wrong[0]} ended {ends[wrong[0]]} times"
        )
    released = {place(event): event for event in confirmed if event.type == "RELEASE" and event.delivery_count < limit}
    if not released:
        yield "S-108: no record was released"
    highest = _highest_counts(events)
    lost = sorted(at for at, release in released.items() if highest.get(at, 0) <= release.delivery_count)
    if lost:
        yield f"S-108: {len(lost)} of {len(released)} released records did not come back, {lost[0]} for one"


def _highest_counts(events: Sequence[Event]) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for event in events:
        if isinstance(event, Delivered | Unseen):
            found[place(event)] = max(found.get(place(event), 0), event.delivery_count)
    return found


def restart_consumers(trial: Trial) -> None:
    """Restart consumers in five rounds, alternately cleanly and by SIGKILL: one after another, then all at the same
    time. Every consumer must get work after each step."""
    names = trial.load.consumers()
    for turn in range(RESTART_ROUNDS):
        unclean = bool(turn % 2)
        for number in range(len(names)):
            _leave(trial, names[number], unclean)
            names[number] += "a"
            trial.load.start_worker(names[number], "consumer")
            trial.load.wait_working(names)
        for name in names:
            _leave(trial, name, unclean)
        names = [f"{name}b" for name in names]
        for name in names:
            trial.load.start_worker(name, "consumer")
        trial.load.wait_working(names)


def _leave(trial: Trial, name: str, unclean: bool) -> None:
    if unclean:
        trial.kill_consumer(name)
    else:
        trial.load.dismiss(name)


def churn(trial: Trial) -> None:
    """Let two additional members leave and join again every few hundred milliseconds."""
    for number in range(2):
        trial.load.start_worker(f"churner{number}", "churner")
    trial.pass_time(8.0, 9.0)


def pause_consumer(trial: Trial) -> None:
    """Pause one consumer that holds records for longer than its locks and its session; others get its records, and it
    resumes."""
    worker = trial.load.workers["consumer0"]
    tail, since_ms = Tail(trial.folder), now_ms()
    trial.until(lambda: any(_got(event, worker.name, since_ms) for event in tail.new()), "records of consumer0")
    trial.record_of_worker(PAUSED, worker.name)
    worker.pause()
    trial.pass_time(BEYOND_SESSION_S, BEYOND_SESSION_S + 0.5)
    # Each partition has one member here: others get the records once the partition is assigned to them. Only the newest
    # records are used: responses to acknowledgements of older ones may be waiting in the paused process.
    seen, history = list[Event](), Tail(trial.folder)

    def taken_over() -> bool:
        seen.extend(history.new())
        found = _pause(sorted([*seen, Fault(RESUMED, worker.name, now_ms())], key=lambda event: event.at_ms))
        if found is None or not found.held:
            return False
        newest = max(one.at_ms for one in found.held.values())
        return any(found.held[place(event)].at_ms == newest for event in found.taken_over)

    with suppress(AssertionError):  # the check reports it, with what it saw
        trial.until(taken_over, f"records of {worker.name} at other members")
    trial.record_of_worker(RESUMED, worker.name)  # recorded before it resumes: what it sends from then on is late
    worker.resume()
    trial.load.wait_working([worker.name])


def _got(event: Event, worker: str, since_ms: int) -> bool:
    return isinstance(event, Delivered) and event.worker == worker and event.at_ms >= since_ms


def held_records_come_back(events: Sequence[Event]) -> Iterator[str]:
    """S-113: the paused consumer held records, others received some of them once the locks had expired, and the expiry
    ended no record: each that had deliveries left was redelivered."""
    found = _pause(events)
    if found is None:
        yield "S-113: no consumer was paused and went on"
        return
    if not found.held:
        yield f"S-113: {found.worker} held no record when it was paused"
    elif not found.taken_over:
        records = f"{len(found.held)} records of {found.worker}"
        yield f"S-113: no other member got any of the {records} after their locks' end"
    again = {place(event) for event in found.again}
    if left := sorted(found.held.keys() - again):
        yield (
            f"S-113: {len(left)} of the {len(found.held)} records that {found.worker} held when it was paused were not "
            f"delivered again, {left[0]} for one"
        )


class _Pause(NamedTuple):
    """The records that `worker` held when it was paused and that had deliveries left, their later deliveries, and those
    later deliveries that other members got between the end of the locks and the end of the pause."""

    worker: str
    held: dict[Place, Delivered]
    again: list[Delivered | Unseen]
    taken_over: list[Delivered | Unseen]


def _pause(events: Sequence[Event]) -> _Pause | None:
    settings = next((event for event in events if isinstance(event, Configured)), None)
    paused, resumed = (
        next((event for event in events if isinstance(event, Fault) and event.name == name), None)
        for name in (PAUSED, RESUMED)
    )
    if settings is None or paused is None or resumed is None:
        return None
    held = {
        at: one for at, one in _held(events, paused, resumed).items() if one.delivery_count < settings.delivery_limit
    }
    again = [
        event
        for event in events
        if isinstance(event, Delivered | Unseen)
        and (one := held.get(place(event)))
        and event.at_ms > paused.at_ms
        and event.delivery_count > one.delivery_count
    ]
    taken_over = [
        event
        for event in again
        if event.worker != paused.target
        and held[place(event)].fetched_ms + settings.lock_ms <= event.at_ms < resumed.at_ms
    ]
    return _Pause(paused.target, held, again, taken_over)


def _held(events: Sequence[Event], paused: Fault, resumed: Fault) -> dict[Place, Delivered]:
    """Return the records that the paused worker was the last to get and had not acknowledged when it stopped."""
    last: dict[Place, Delivered | Unseen] = {}
    for event in events:
        if isinstance(event, Delivered | Unseen) and event.at_ms <= paused.at_ms:
            last[place(event)] = event
    held = {at: one for at, one in last.items() if isinstance(one, Delivered) and one.worker == paused.target}
    for event in events:
        if isinstance(event, Acknowledged) and event.worker == paused.target and event.sent_ms < resumed.at_ms:
            one = held.get(place(event))
            if one is not None and event.sent_ms >= one.at_ms:
                del held[place(event)]
    return held


EXPERIMENTS: Final = (
    Definition(
        "no-failure",
        "Nothing fails: what is released comes back, and each record ends exactly once",
        ("S-108",),
        undisturbed,
        EXACT,
        (exact_counts, each_ends_once, everybody_worked, counts_rise),
    ),
    Definition(
        "consumer-restarts",
        "Consumers restarted one by one and all at once, in good order and by SIGKILL",
        ("S-107",),
        restart_consumers,
        checks=(everybody_worked,),
    ),
    Definition(
        "consumer-paused",
        "A consumer paused with records for longer than lock and session timeout",
        ("S-113",),
        pause_consumer,
        HOLDING,
        (held_records_come_back, works_again_after(RESUMED)),
    ),
    Definition("members-churning", "Members leave and join every few hundred ms", ("schedule: churn",), churn),
)
