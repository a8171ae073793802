"""`make report`: ingests a store's records and writes the page. The last line on standard output is the page's path.

python -m tools.report --demo build/demo --out report.html       # of the demo that runs there, or ran there last
python -m tools.report --store URL --data DIR --out report.html  # of any store; DIR keeps its history
python -m tools.report --data DIR --out report.html              # of records ingested before
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from share_metrics.commands import metrics
from share_node.demo.command import CLUSTER_DATA
from share_node.state.dump import embedded_url
from share_node.store.data_directory import DataDirectory, DataDirectoryError
from share_node.store.embedded_store import EmbeddedStore, EmbeddedStoreError


def main(arguments: list[str] | None = None) -> int:
    """Ingest and report. Returns the exit status."""
    options = _parser().parse_args(arguments)
    window: tuple[str, ...] = ()
    if options.demo is not None:
        if not (options.demo / CLUSTER_DATA).exists():
            print(f"No demo has run in {options.demo} yet; run `make demo` first, or give STORE=url.", file=sys.stderr)
            return 1
        options.data = options.demo / CLUSTER_DATA / "metrics"  # so that it is removed with the demo's data
        try:
            with demo_store(options.demo / CLUSTER_DATA) as url:
                _metrics("ingest", "--store", url, "--data", str(options.data))
            window = ("--window", "1")  # a demo takes one minute, so windows of a minute would show little
        except (DataDirectoryError, EmbeddedStoreError) as error:
            print(f"Error: {error}", file=sys.stderr)
            return 1
    elif options.store is not None:
        _metrics("ingest", "--store", options.store, "--data", str(options.data))
    _metrics("report", "--data", str(options.data), "--out", str(options.out), *window)
    return 0


@contextmanager
def demo_store(data: Path) -> Iterator[str]:
    """Yield the URL of a demo's store. If the demo is not running, run a store on its files inside the block.

    Raises EmbeddedStoreError or DataDirectoryError.
    """
    try:
        url = embedded_url(data)
    except click.ClickException:
        url = ""
    if url:
        yield url
        return
    with asyncio.Runner() as runner:
        store = runner.run(_started(data))
        try:
            yield store.url
        finally:
            runner.run(store.stop())


async def _started(data: Path) -> EmbeddedStore:
    store = EmbeddedStore(DataDirectory(data), "everysec")
    await store.start()
    return store


def _metrics(*words: str) -> None:
    """Run `sharegroups metrics …` in this process, so that Spark starts only once. If it fails, exit as it does."""
    try:
        metrics.main(list(words), prog_name="sharegroups metrics", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.report", description=__doc__)
    whence = parser.add_mutually_exclusive_group()
    whence.add_argument("--demo", type=Path, help="the directory that a demo was given with --keep")
    whence.add_argument("--store", help="URL of a store")
    parser.add_argument("--data", type=Path, default=Path("metrics-data"), help="directory of what was ingested")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
