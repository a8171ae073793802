"""Experiments on consumers: none is disturbed, some come and go, one is paused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.chaos.checker import counts_rise
from tests.chaos.experiments.definition import Definition, everybody_worked, works_again_after
from tests.chaos.history import Acknowledged, Event, Produced
from tests.chaos.load import LoadOptions
from tests.chaos.trial import Trial

#: S-108 asks for a million records, scaled down where time is short.
EXACT: Final = LoadOptions(partitions=3, rate=2_000, records=10_000, accept_only=True)
#: Behind the session timeout of the settings that the runner gives, and far behind the lock.
BEYOND_SESSION_S: Final = 7.5


def undisturbed(trial: Trial) -> None:
    """Everything is produced and accepted; nothing happens."""
    history = trial.folder / "producer.jsonl"
    trial.until(lambda: history.read_bytes().count(b"\n") >= EXACT.records, "end of producing", 60.0)


def exact_counts(events: Sequence[Event]) -> Iterator[str]:
    """S-108: as many records were acknowledged with NONE as were produced, each of them once."""
    produced = {(event.partition, event.offset) for event in events if isinstance(event, Produced)}
    accepted = [(e.partition, e.offset) for e in events if isinstance(e, Acknowledged) and not e.error]
    if len(produced) != EXACT.records:
        yield f"S-108: {len(produced)} records were confirmed, expected {EXACT.records}"
    if len(accepted) != len(produced) or set(accepted) != produced:
        yield f"S-108: {len(accepted)} acknowledgements of {len(set(accepted))} records, {len(produced)} were produced"


def restart_consumers(trial: Trial) -> None:
    """One by one and all at once, in good order and by SIGKILL; each newcomer must get work."""
    for turn, unclean in enumerate((False, True)):
        for number in range(trial.load.options.consumers):
            _leave(trial, f"consumer{number}" + "a" * turn, unclean)
            trial.load.start_worker(f"consumer{number}" + "a" * (turn + 1), "consumer")
            trial.load.wait_working([f"consumer{number}" + "a" * (turn + 1)])
    for turn, unclean in enumerate((False, True), start=2):
        for number in range(trial.load.options.consumers):
            _leave(trial, f"consumer{number}" + "a" * turn, unclean)
        names = [f"consumer{number}" + "a" * (turn + 1) for number in range(trial.load.options.consumers)]
        for name in names:
            trial.load.start_worker(name, "consumer")
        trial.load.wait_working(names)


def _leave(trial: Trial, name: str, unclean: bool) -> None:
    if unclean:
        trial.kill_consumer(name)
    else:
        trial.load.dismiss(name)


def churn(trial: Trial) -> None:
    """Two more members leave and join again every few hundred milliseconds."""
    for number in range(2):
        trial.load.start_worker(f"churner{number}", "churner")
    trial.pass_time(8.0, 9.0)


def pause_consumer(trial: Trial) -> None:
    """One consumer stands still beyond its locks and its session; others get its records, and it comes back."""
    worker = trial.load.workers["consumer0"]
    trial.tell_worker("SIGSTOP of a consumer", "consumer0")
    worker.pause()
    trial.pass_time(BEYOND_SESSION_S, BEYOND_SESSION_S + 0.5)
    worker.resume()
    trial.tell_worker("SIGCONT of a consumer", "consumer0")
    trial.load.wait_working(["consumer0"])


EXPERIMENTS: Final = (
    Definition(
        "no-failure",
        "Nothing fails: acknowledged exactly as often as produced",
        ("S-108",),
        undisturbed,
        EXACT,
        (exact_counts, everybody_worked, counts_rise),
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
        "A consumer paused for longer than lock and session timeout",
        ("S-113",),
        pause_consumer,
        checks=(works_again_after("SIGCONT of a consumer"),),
    ),
    Definition("members-churning", "Members leave and join every few hundred ms", ("schedule: churn",), churn),
)
