"""The judges of an attack see what they must: a slow or failed turn, a node that newcomers do not reach, its memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from tests.attack.canary import Turn, song
from tests.attack.catalogue import ATTACKS, named
from tests.attack.siege import GROWTH_MAX
from tests.attack.watch import MIB, Watch, resident_bytes


def test_the_song_counts_failed_turns_and_their_time() -> None:
    turns = [Turn(number, 0, 10, "") for number in range(98)]
    turns += [Turn(98, 0, 700, ""), Turn(99, 0, 30_000, "TimeoutError")]
    found = song(turns)
    assert (found.turns, found.failed, found.p50_ms, found.p99_ms, found.worst_ms) == (100, 1, 10, 30_000, 30_000)
    assert found.errors == ("TimeoutError",)
    assert song(turns[:99]).p99_ms == 700


def test_a_node_that_accepts_connections_and_serves_nobody_is_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts; nobody answers
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Watch({"mute": address}, dict) as watch:
            deadline = time.monotonic() + 60
            while watch.longest_outage_s()["mute"] < 2.5:
                assert time.monotonic() < deadline, watch.longest_outage_s()
                time.sleep(0.1)


def test_memory_is_that_of_the_process_and_its_growth_is_seen() -> None:
    code = (
        "import sys\nheld = []\n"
        "for line in sys.stdin:\n    held.append(bytearray(b'x' * 40_000_000)); print('more', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with Watch({"eater": "127.0.0.1:1"}, lambda: {"eater": process.pid}) as watch:
            for _ in range(6):
                process.stdin.write(b"go\n")
                process.stdin.flush()
                assert process.stdout.readline() == b"more\n"
                time.sleep(0.6)
            assert watch.peak_bytes("eater") > 200 * MIB
            assert watch.growth("eater") > 1.1
            first, *_, last = watch.medians_mib("eater", 3)
            assert last > first + 80
        process.stdin.close()
    assert resident_bytes(process.pid) == 0
    assert resident_bytes(os.getpid()) > MIB


def test_growth_is_that_of_what_is_kept_not_of_what_an_attack_takes() -> None:
    watch = Watch({"bursts": "127.0.0.1:1", "leaks": "127.0.0.1:1"}, dict)
    calm, burst = [100 * MIB] * 90, [500 * MIB] * 90
    watch._memory["bursts"] = calm + burst[:10] + calm[:80] + burst[:80] + calm[:10]
    assert watch.growth("bursts") == 1.0
    watch._memory["leaks"] = [(100 + number // 6) * MIB for number in range(270)]
    assert watch.growth("leaks") > GROWTH_MAX


def test_attacks_are_found_by_name() -> None:
    assert named(ATTACKS[0].name) is ATTACKS[0]
    with pytest.raises(ValueError, match=ATTACKS[0].name):
        named("nobody")
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
