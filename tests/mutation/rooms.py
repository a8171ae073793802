"""Which sources are changed, by room (cores, hosts, engine), and which tests judge them first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.mutation.changes import Change, changes, compiles

ROOT = Path(__file__).resolve().parents[2]
CORES, HOSTS, ENGINE = "cores", "hosts", "engine"
ROOMS = (CORES, HOSTS, ENGINE)
#: The engine: the folders of the client that make, send and read requests, and the asyncio classes over them.
_ENGINE_NOUNS = ("administration", "aio", "connection", "consuming", "producing")
#: Run by a person at a terminal, or only in a container image; the fast tests do not cover them.
_OUTSIDE = ("services/share_node/demo", "services/share_node/scaler", "__main__.py")
#: Tests of hosts on a real store and real sockets that start no process but the store; each takes a few milliseconds.
_ON_SOCKETS = (
    "contracts",
    "integration/runtime",
    "integration/topic_log",
    "integration/share_coordinator",
    *(f"integration/share_node/test_{name}.py" for name in ("embedded_store", "health", "state_reading")),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A change to the file `path`, relative to the project."""

    room: str
    path: str
    change: Change

    @property
    def module(self) -> str:
        """Return the module's name, as it is imported."""
        return ".".join(Path(self.path).with_suffix("").parts[1:]).removesuffix(".__init__")

    @property
    def key(self) -> str:
        """Return a key that is unique for each change."""
        return f"{self.path}:{self.change.start}:{self.change.end}:{self.change.new}"


def files(root: Path, room: str) -> list[str]:
    """Return the sources of a room."""
    if room == ENGINE:
        found = [path for noun in _ENGINE_NOUNS for path in (root / "client/sharegroups" / noun).rglob("*.py")]
    else:
        found = [path for path in (root / "services").rglob("*.py") if ("core" in path.parts) == (room == CORES)]
    names = sorted(path.relative_to(root).as_posix() for path in found)
    return [name for name in names if not any(part in name for part in _OUTSIDE)]


def draw(root: Path, room: str, count: int, seed: int) -> list[Place]:
    """Draw `count` changes: go through the files in random order, taking one random change from each, until there are
    enough.

    So every file has the same weight, regardless of its length.
    """
    rng = Random(f"{room} {seed}")
    left: dict[str, list[Change]] = {}
    for name in files(root, room):
        left[name] = changes((root / name).read_text(encoding="utf-8"))
        rng.shuffle(left[name])
    order = list(left)
    rng.shuffle(order)
    drawn: list[Place] = []
    while any(left.values()) and len(drawn) < count:
        for name in order:
            if len(drawn) < count and (change := _next(root / name, left[name])) is not None:
                drawn.append(Place(room, name, change))
    return drawn


def _next(path: Path, left: list[Change]) -> Change | None:
    source = path.read_text(encoding="utf-8")
    while left:
        change = left.pop()
        if compiles(source, change):
            return change
    return None


def stages(root: Path, place: Place, seeds: int) -> list[list[str]]:
    """Return what judges the changed module, nearest first, each as arguments for `tests.mutation.one`: its own test,
    its folder's tests, its package's tests, then this many seeds, then the other fast tests of the services or the
    client."""
    package = Path(place.path).parts[1]
    unit = root / "tests/unit" / package
    own = own_test(root, place)
    near = _present(root, [own, own.parent, unit])
    wide = [root / "tests" / name for name in ("properties", "scenarios")]
    if place.room != ENGINE:
        wide += sorted(path for path in (root / "tests/unit").iterdir() if path.name not in {package, "sharegroups"})
    if place.room == HOSTS:
        wide += [root / "tests" / name for name in _ON_SOCKETS]
    played = [["--seeds", str(seeds)]] if seeds else []
    return [*near, *played, *_present(root, wide)]


def counts(room: str, test: str) -> bool:
    """Return True if a change found by `test`, a path or node id, counts as found in that room."""
    return room == HOSTS or not test.startswith(tuple(f"tests/{name}" for name in _ON_SOCKETS))


def own_test(root: Path, place: Place) -> Path:
    """Return the path at which the changed module's own test would be."""
    package, *rooms = Path(place.path).with_suffix("").parts[1:]
    return (root / "tests/unit" / package).joinpath(*rooms[:-1]) / f"test_{rooms[-1]}.py"


def _present(root: Path, paths: Iterable[Path]) -> list[list[str]]:
    found = dict.fromkeys(path.relative_to(root).as_posix() for path in paths if path.suffix == ".py" or path.is_dir())
    return [[name] for name in found if (root / name).exists() and not name.endswith("__pycache__")]
