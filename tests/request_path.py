"""Print which folders and files of the services one request runs through: `python -m tests.request_path`.

A node with all roles notes each call of a function while one request is on its way. Of many requests of each kind that
with the fewest changes of folder counts: in the others, a timer of the node ran meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest
from tests.integration.scenarios.sessions import ACCEPT, acquired, fx_rpc
from tests.integration.scenarios.wire import BOUND_S, Wire
from tests.support.node import Cluster, StartedProcess, up_words

ROOT: Final = Path(__file__).parent.parent
ROOTS: Final = tuple(str(ROOT / name) + "/" for name in ("services", "protos"))
TURNS: Final = 30
_STEP_S: Final = 0.02


class Calls(NamedTuple):
    """Files in the order in which their functions were called, and how many functions these were."""

    files: Sequence[str]
    functions: int

    @property
    def folders(self) -> list[str]:
        """The folder of each call."""
        return [file.rpartition("/")[0] for file in self.files]

    @property
    def changes(self) -> int:
        """How often a call was in a different folder from the previous call."""
        return sum(before != after for before, after in pairwise(self.folders))


def node(out: Path, words: Sequence[str]) -> None:
    """Run `share_node`; SIGUSR1 begins to note calls, and the next one writes them to `out`."""
    called: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code)

    def toggle(*_: object) -> None:
        if sys.getprofile() is None:
            called.clear()
            sys.setprofile(note)
            return
        sys.setprofile(None)
        ours = [code for code in called if code.co_filename.startswith(ROOTS)]
        files = [code.co_filename.removeprefix(str(ROOT) + "/").partition("/")[2] for code in ours]
        part = out.with_suffix(".part")
        part.write_text(json.dumps([files, len(set(ours))]))
        part.rename(out)

    signal.signal(signal.SIGUSR1, toggle)
    sys.argv = ["share_node", *words]
    from share_node.commands import main  # noqa: PLC0415 - imported functions are called, too

    main()


class NotingCluster(Cluster):
    """A cluster of one process that notes its calls."""

    def start(self) -> None:
        """Start it."""
        self.out = self.folder / "calls.json"
        words = up_words(self.folder / "data", {})[1:]
        self.node = StartedProcess(["tests.request_path", "--node", str(self.out), *words], self.folder)
        self.ready = json.loads(self.node.first_line())

    async def path(self, request: Awaitable[object]) -> Calls:
        """Return what ran while the request was on its way."""
        self.node.signal(signal.SIGUSR1)
        await asyncio.sleep(_STEP_S)
        await request
        self.node.signal(signal.SIGUSR1)
        deadline = time.monotonic() + BOUND_S
        while not self.out.exists():
            assert time.monotonic() < deadline, self.node.errors
            await asyncio.sleep(_STEP_S)
        found = Calls(*json.loads(self.out.read_text()))
        self.out.unlink()
        return found


async def measured(cluster: NotingCluster) -> dict[str, Calls]:
    """Return the path of each kind of request."""
    async with Wire(cluster.bootstrap) as wire:
        session, topic = await fx_rpc(wire)
        rejoined = await wire.heartbeat(session.group, session.member, 0, [topic])
        beat = ShareGroupHeartbeatRequest(
            group_id=session.group, member_id=session.member, member_epoch=rejoined.member_epoch
        )
        paths: dict[str, list[Calls]] = {"heartbeat": [], "produce": [], "ShareFetch": [], "acknowledgement": []}
        for _ in range(TURNS):
            paths["heartbeat"].append(await cluster.path(wire.call("ShareGroupHeartbeat", beat)))
            paths["produce"].append(await cluster.path(wire.produce(session.topic_id, 1)))
            answers: list[Any] = []
            paths["ShareFetch"].append(await cluster.path(_kept(session.fetch, answers)))
            ((first, last, _),) = acquired(answers[0])
            paths["acknowledgement"].append(await cluster.path(session.acknowledge((first, last, [ACCEPT]))))
        return {kind: min(found, key=lambda path: (path.changes, len(path.files))) for kind, found in paths.items()}


async def _kept(call: Callable[[], Awaitable[Any]], answers: list[Any]) -> None:
    answers.append(await call())


def main() -> None:
    """Print a line for each kind of request, and with `--verbose` its files in the order of the calls."""
    cluster = NotingCluster()
    try:
        paths = asyncio.run(measured(cluster))
    finally:
        cluster.close()
    print(f"{'request':<16} folders  files  functions  changes of folder")
    for kind, path in paths.items():
        folders, files = len(set(path.folders)), len(set(path.files))
        print(f"{kind:<16} {folders:>7} {files:>6} {path.functions:>10} {path.changes:>18}")
        if "--verbose" in sys.argv:
            order = [file for before, file in pairwise(["", *path.files]) if file != before]
            print(*(f"    {file}" for file in order), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        node(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
