"""The demo's output: progress while it runs; at the end the table, and the totals next to the direct count."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from share_node.demo.run import Outcome
from share_node.demo.run import Progress as DemoProgress


class ProgressBar:
    """Shows how many records were produced and finished."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._produced = self._progress.add_task("produced", total=None)
        self._finished = self._progress.add_task("finished", total=None)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, progress: DemoProgress) -> None:
        """Move the bars."""
        total = progress.produced if progress.sent_all else None
        self._progress.update(self._produced, completed=progress.produced, total=total)
        self._progress.update(self._finished, completed=progress.finished, total=total)


def print_outcome(console: Console, name: str, outcome: Outcome) -> None:
    """Print the table that accounts for every record, and the two counts side by side."""
    ledger = outcome.ledger
    table = Table(title=f"{name} through a share group", show_header=False)
    rate = len(ledger.produced) / outcome.seconds if outcome.seconds else 0.0
    counts = ", ".join(f"{times}×: {records}" for times, records in ledger.delivery_counts.items())
    table.add_row("records produced", str(len(ledger.produced)))
    table.add_row("accepted", str(ledger.accepted))
    table.add_row("rejected (cannot be parsed)", str(ledger.rejected))
    letters = f"none: {outcome.no_letters}" if ledger.letters is None else str(ledger.letters)
    table.add_row("dead letters about them", letters)
    table.add_row("finished after redelivery", str(ledger.redelivered))
    table.add_row("records by delivery count", counts)
    table.add_row("failed once, tried again", str(ledger.failed))
    table.add_row("deliveries by worker", ", ".join(f"{n}: {done}" for n, done in sorted(ledger.by_worker.items())))
    if outcome.killed_worker:
        table.add_row("killed with SIGKILL amid its jobs", f"worker {outcome.killed_worker}")
    table.add_row("time and rate", f"{outcome.seconds:.1f} s, {rate:.0f} records/s")
    console.print(table)
    totals = Table(title="The same work, counted twice")
    for column in ("", "through the queue", "directly", ""):
        totals.add_column(column, justify="right")
    rows = [
        ("accepted", ledger.accepted, outcome.direct_accepted),
        ("rejected", ledger.rejected, outcome.direct_rejected),
    ]
    rows += [(key, ledger.totals[key], outcome.direct[key]) for key in sorted(outcome.direct)]
    for label, mine, theirs in rows:
        totals.add_row(label, str(mine), str(theirs), "equal" if mine == theirs else "DIFFERENT")
    console.print(totals)
    if outcome.logged:
        console.print("A worker logs every job that fails, and what happens next:")
        for line in outcome.logged:
            console.print(f"  {line}", markup=False, highlight=False)
    for discrepancy in outcome.discrepancies:
        console.print(f"Error: {discrepancy}", style="bold red")
    if not outcome.discrepancies:
        console.print("Every record is accounted for; the totals are equal.")


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the outcome as a JSON object, for programs."""
    ledger = outcome.ledger
    return {
        "produced": len(ledger.produced),
        "accepted": ledger.accepted,
        "rejected": ledger.rejected,
        "letters": ledger.letters,
        "failed": ledger.failed,
        "redelivered": ledger.redelivered,
        "delivery_counts": ledger.delivery_counts,
        "by_worker": dict(sorted(ledger.by_worker.items())),
        "killed_worker": outcome.killed_worker,
        "seconds": round(outcome.seconds, 3),
        "totals": dict(ledger.totals),
        "direct": {"accepted": outcome.direct_accepted, "rejected": outcome.direct_rejected, **outcome.direct},
        "discrepancies": outcome.discrepancies,
    }
