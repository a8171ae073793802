"""`sharegroups demo`: options in, the result as tables or JSON and an exit status out.

Without a cluster of the user's, the demo starts one of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from share_node.demo.jobs import InputError, Job, job_for
from share_node.demo.run import Demo, DemoError, Outcome
from share_node.demo.run import Progress as DemoProgress
from share_node.node.serve import WITH_PARENT
from share_node.store.data_directory import FILE_MODE, DataDirectory, DataDirectoryError
from sharegroups import KafkaError
from sharegroups.cli.output import FILE, lines_of, pairs

#: How long deleting the topics may take after a signal ended the demo, ms.
_CLEAR_MS: Final = 5_000
_CLUSTER_STOP_WAIT_S: Final = 30.0

#: The data that a demo leaves in a kept directory, next to its log; the next demo there removes it.
CLUSTER_DATA: Final = "cluster"


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


def outcome_as_json(outcome: Outcome) -> dict[str, object]:
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


@click.command()
@click.option("--input", "input_path", metavar="FILE", help="Your own data: lines, JSONL or CSV, plain or gzip.")
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1, 64), help="Worker processes to start.")
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A running cluster; by default one is started for this.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Directory that keeps the data of its own cluster."
)
@click.option("--command-config", type=FILE, help="Client settings (name=value lines) for a running cluster.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", help="How the result is printed.")
def demo(
    *,
    input_path: str | None,
    workers: int,
    bootstrap_server: str | None,
    keep: Path | None,
    command_config: Path | None,
    output: str,
) -> None:
    """Run the whole story on real input: produce, work, fail, reject, kill a worker, account for every record.

    Its topics are deleted at the end, unless it fails; its share group stays in a cluster of yours.
    Exit status: 0 when every record is accounted for and the totals equal a count without the queue, else 1; 130 after
    Ctrl-C and 143 after SIGTERM, its workers dismissed, its topics deleted, its own cluster stopped.
    """
    if bootstrap_server is None and command_config is not None:
        bootstrap_server = pairs(lines_of(command_config)).get("bootstrap.servers")
        if bootstrap_server is None:
            raise click.UsageError(
                "--command-config is for a running cluster, but none is named; expected --bootstrap-server, or "
                f"bootstrap.servers in {command_config}"
            )
    if keep is not None and bootstrap_server is not None:
        raise click.UsageError("--keep is for the demo's own cluster; yours keeps its data anyway")
    console = Console(stderr=output == "json")
    try:
        job = job_for(input_path)
        with _cluster(bootstrap_server, keep, console) as bootstrap:
            story = Demo(bootstrap, job, workers, input_path, command_config)
            try:
                outcome = _run(console, story, job, workers)
            except KeyboardInterrupt:
                if bootstrap_server is not None:
                    console.print(f"Stopped. In the cluster {story.clear_away(_CLEAR_MS)}.")
                raise
            if bootstrap_server is not None:
                console.print(f"In the cluster {story.clear_away()}.")
    except (DemoError, InputError, KafkaError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(json.dumps(outcome_as_json(outcome)))
    else:
        print_outcome(console, job.name, outcome)
    sys.exit(1 if outcome.discrepancies else 0)


@contextlib.contextmanager
def _cluster(bootstrap: str | None, keep: Path | None, console: Console) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with _own_cluster(keep) as (address, ready_ms):
        console.print(f"sharegroups is up at {address} after {ready_ms} ms: one store, all three services.")
        yield address


def _run(console: Console, story: Demo, job: Job, workers: int) -> Outcome:
    fate = "; one of them will be killed" if story.kills else ""
    crew = "1 worker works" if workers == 1 else f"{workers} workers work"
    console.print(f"{crew} on the {job.name}{fate}.")
    with ProgressBar(console) as bar:
        return story.run(bar.show)


@contextlib.contextmanager
def _own_cluster(keep: Path | None = None) -> Iterator[tuple[str, int]]:
    """Start a cluster, `sharegroups up` as a child process; yield (bootstrap address, milliseconds until it was ready).

    Its data is in a temporary directory that is removed afterwards; with `keep`, it stays in `keep`/cluster, so that a
    person can inspect it. Raises DemoError when it does not start, or another demo runs in `keep`.
    """
    with _data_folder(keep) as data, _own_log(Path(data) / "up.log") as log:
        command = [sys.executable, "-m", "share_node", "up", "--data", f"{data}/{CLUSTER_DATA}", "--port", "0"]
        command += ["--output", "json", "--log-level", "warning", WITH_PARENT]
        # A session of its own: so Ctrl-C at the terminal only reaches the demo, which first dismisses its workers. When
        # the demo is killed, the cluster's standard input closes.
        node = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            assert node.stdout is not None
            line = node.stdout.readline()
            if not line.startswith("{"):
                node.wait(_CLUSTER_STOP_WAIT_S)
                log.seek(0)
                raise DemoError(f"the cluster did not start: {line.strip()} {log.read()[-2000:].strip()}")
            ready = json.loads(line)
            yield ready["bootstrap"], ready["started_in_ms"]
        finally:
            node.terminate()
            try:
                node.wait(_CLUSTER_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
            for pipe in (node.stdin, node.stdout):
                if pipe is not None:
                    pipe.close()


def _own_log(path: Path) -> TextIO:
    """Open a file for this user alone, whatever the umask, and empty it; a log may quote what records contain
    (CM-185)."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE), "w+")
    os.fchmod(file.fileno(), FILE_MODE)  # one that an earlier version has made, too
    return file


@contextlib.contextmanager
def _data_folder(keep: Path | None) -> Iterator[str]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="sharegroups-demo-") as folder:
            yield folder
        return
    data = keep / CLUSTER_DATA
    try:
        if data.exists():
            lock = DataDirectory(data).lock("store")
            lock.acquire("a demo that starts")
            shutil.rmtree(data)
            lock.release()
        keep.mkdir(parents=True, exist_ok=True)
    except (DataDirectoryError, OSError) as error:
        raise DemoError(f"cannot keep the demo's data in {keep}: {error}") from error
    yield str(keep)
