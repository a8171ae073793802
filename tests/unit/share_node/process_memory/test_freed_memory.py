"""Freed memory is given back to the system once there is enough of it (CM-95a)."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from share_node.process_memory import memory_checks
from share_node.process_memory.memory_checks import FREED_BYTES, CLibrary, FreedMemory, resident_bytes

MIB = 1024 * 1024

#: A process like a node's, in which twelve threads keep memory allocated at the same time. It writes the C library's
#: report about its arenas to the file named by its argument.
THREADS = """
import ctypes, sys, threading
from share_node.node.serve import run

kept, met = [], threading.Barrier(12)

def allocate():
    met.wait()
    kept.append([bytes(9_000) for _ in range(100)])
    met.wait()

async def main():
    threads = [threading.Thread(target=allocate) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

run(main)
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(library.fopen(sys.argv[1].encode(), b"w"))
library.malloc_info(0, out)
library.fclose(out)
"""

#: A process like a node's, which needs and frees the memory of eight batches again and again. It prints how many pages
#: of memory it got from the system for the last hundred times.
BATCHES = """
import resource
from share_node.node.serve import run

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

async def main():
    for number in range(200):
        if number == 100:
            began = faults()
        [bytearray(b"x") * 1_000_000 for _ in range(8)]
    print(faults() - began)

run(main)
"""


@dataclass
class Allocator:
    """An allocator whose numbers are set by a test; memory that was given back still counts as free."""

    used: int = 0
    free: int = 0
    trims: int = 0

    def usage(self) -> tuple[int, int]:
        return self.used, self.free

    def trim(self) -> None:
        self.trims += 1


@pytest.mark.rule("CM-95a")
def test_what_was_freed_is_given_back_once() -> None:
    allocator = Allocator(used=50 * MIB, free=10 * MIB)
    freed = FreedMemory(allocator.usage, allocator.trim)
    allocator.free = 10 * MIB + FREED_BYTES - 1
    assert not freed.check()
    allocator.free += 1
    assert freed.check()
    assert allocator.trims == 1
    assert not freed.check(), "nothing was freed since"


@pytest.mark.rule("CM-95a")
def test_what_was_given_back_taken_again_and_freed_again_counts() -> None:
    allocator = Allocator(used=50 * MIB, free=100 * MIB)
    freed = FreedMemory(allocator.usage, allocator.trim)
    allocator.free = 20 * MIB
    assert not freed.check()
    allocator.free = 20 * MIB + FREED_BYTES
    assert freed.check()


@pytest.mark.rule("CM-95a", "CM-95")
def test_a_c_library_that_cannot_be_asked_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (memory_checks.CHECK_EVERY_S, FREED_BYTES) == (10.0, 32 * MIB)
    assert memory_checks.freed_memory_of_this_process() is not None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=None))
    assert memory_checks.freed_memory_of_this_process() is None


@pytest.mark.rule("CM-95a")
def test_with_more_in_use_more_must_have_been_freed() -> None:
    allocator = Allocator(used=800 * MIB)
    freed = FreedMemory(allocator.usage, allocator.trim)
    allocator.free = 100 * MIB - 1
    assert not freed.check()
    allocator.free += 1
    assert freed.check()


def give_back() -> None:
    """Free pieces of memory between others, so that they are not given back without upkeep; fail unless upkeep gives
    them back."""
    memory_checks.CHECK_EVERY_S = 0.01  # type: ignore[misc]  # Final; this process ends with the test
    assert CLibrary().usage()[0] > MIB

    async def body() -> None:
        before = resident_bytes()
        pieces = [bytes(9_000) for _ in range(10_000)]
        kept = pieces[::50]
        full = resident_bytes()
        assert full - before > 60 * MIB
        del pieces
        for _ in range(500):
            if resident_bytes() - before < 20 * MIB:
                break
            await asyncio.sleep(0.01)
        assert resident_bytes() - before < 20 * MIB
        assert len(kept) == 200

    with asyncio.Runner() as runner, memory_checks.memory_upkeep(runner.get_loop()):
        runner.run(body())


@pytest.mark.rule("CM-95a")
def test_a_process_gives_its_memory_back() -> None:
    """A new process is used: in this one, earlier tests may have left free pieces, which would be used first."""
    subprocess.run([sys.executable, "-c", f"from {__name__} import give_back; give_back()"], check=True, timeout=60)


@pytest.mark.rule("CM-95a")
def test_the_threads_of_a_process_share_two_arenas(tmp_path: Path) -> None:
    """Covers (b), with the start-up that every node has; not how much memory it saves. A new process is used, since
    existing arenas would remain."""
    report = tmp_path / "arenas.xml"
    subprocess.run([sys.executable, "-c", THREADS, str(report)], check=True, timeout=60)
    assert report.read_text().count("<heap nr=") == 2


@pytest.mark.rule("CM-95a")
def test_the_memory_of_batches_serves_the_next_ones_without_new_pages() -> None:
    """Covers (c). By default they would get about 2,000 pages each time."""
    done = subprocess.run([sys.executable, "-c", BATCHES], check=True, timeout=60, capture_output=True, text=True)
    assert int(done.stdout) < 100 * 20
