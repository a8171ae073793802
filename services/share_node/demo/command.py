"""`sharegroups demo`: options in, exit status out."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from share_node.demo.cluster import own_cluster
from share_node.demo.jobs import InputError, Job, job_for
from share_node.demo.report import ProgressBar, as_json, print_outcome
from share_node.demo.run import Demo, DemoError, Outcome
from sharegroups import KafkaError

#: How long deleting the topics may take after a signal ended the demo, ms.
_CLEAR_MS: Final = 5_000


@click.command()
@click.option("--input", "input_path", metavar="FILE", help="Your own data: lines, JSONL or CSV, plain or gzip.")
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1, 64), help="Worker processes to start.")
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A running cluster; by default one is started for this.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Directory that keeps the data of its own cluster."
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", help="How the result is printed.")
def demo(input_path: str | None, workers: int, bootstrap_server: str | None, keep: Path | None, output: str) -> None:
    """Run the whole story on real input: produce, work, fail, reject, kill a worker, account for every record.

    Its topics are deleted at the end, unless it fails; its share group stays in a cluster of yours.
    Exit status: 0 when every record is accounted for and the totals equal a count without the queue, else 1; 130 after
    Ctrl-C and 143 after SIGTERM, its workers dismissed, its topics deleted, its own cluster stopped.
    """
    if keep is not None and bootstrap_server is not None:
        raise click.UsageError("--keep is for the demo's own cluster; yours keeps its data anyway")
    console = Console(stderr=output == "json")
    try:
        job = job_for(input_path)
        with _cluster(bootstrap_server, keep, console) as bootstrap:
            story = Demo(bootstrap, job, workers, input_path)
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
        click.echo(json.dumps(as_json(outcome)))
    else:
        print_outcome(console, job.name, outcome)
    sys.exit(1 if outcome.discrepancies else 0)


@contextlib.contextmanager
def _cluster(bootstrap: str | None, keep: Path | None, console: Console) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with own_cluster(keep) as (address, ready_ms):
        console.print(f"sharegroups is up at {address} after {ready_ms} ms: one store, all three services.")
        yield address


def _run(console: Console, story: Demo, job: Job, workers: int) -> Outcome:
    fate = "; one of them will be killed" if story.kills else ""
    crew = "1 worker works" if workers == 1 else f"{workers} workers work"
    console.print(f"{crew} on the {job.name}{fate}.")
    with ProgressBar(console) as bar:
        return story.run(bar.show)
