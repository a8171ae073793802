"""The judges of an attack detect what they must: a slow or failed turn, a node that new clients cannot reach, its
memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from tests.attack.__main__ import _close
from tests.attack.canary import Canary, Turn, song
from tests.attack.catalogue import ATTACKS, named
from tests.attack.definition import Attack
from tests.attack.siege import GROWTH_MAX, Siege
from tests.attack.watch import MIB, Watch, resident_bytes
from tests.chaos.drivers.processes import ProcessesDeployment
from tests.chaos.load import Load
from tests.chaos.verdict import Stall, Verdict


def test_the_song_counts_failed_turns_and_their_time() -> None:
    turns = [Turn(number, 0, 10, "") for number in range(98)]
    turns += [Turn(98, 0, 700, ""), Turn(99, 0, 30_000, "TimeoutError")]
    found = song(turns)
    assert (found.turns, found.failed, found.p50_ms, found.p99_ms, found.worst_ms) == (100, 1, 10, 30_000, 30_000)
    assert found.errors == ("TimeoutError",)
    assert song(turns[:99]).p99_ms == 700


def test_a_node_that_accepts_connections_and_serves_no_client_is_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, but no server responds
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Watch({"mute": address}, dict) as watch:
            deadline = time.monotonic() + 60
            while watch.longest_outage_s()["mute"] < 2.5:
                assert time.monotonic() < deadline, watch.longest_outage_s()
                time.sleep(0.1)


def test_the_watch_ends_before_the_books_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge keeps this process busy, and a watch that was still running once took that for an outage of a node."""
    order: list[str] = []
    siege = Siege(tmp_path, 1, books=True)
    siege.watch = cast(Watch, SimpleNamespace(stop=lambda: order.append("watch ends")))
    siege._load = cast(Load, SimpleNamespace(finish=lambda: order.append("books end")))
    monkeypatch.setattr("tests.attack.siege.judge_history", lambda history: order.append("judged"))
    siege.judge()
    assert order == ["watch ends", "books end", "judged"]
    with Watch({"unreachable": "127.0.0.1:1"}, dict) as watch:
        watch.stop()
        watched_s = watch.watched_s()
        assert not any(thread.is_alive() for thread in watch._threads)
        assert watch.watched_s() == watched_s


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


def besieged(tmp_path: Path, turns: list[Turn], outage_s: float = 0.0) -> Siege:
    """Return a siege without nodes, with a canary's turns and an outage seen by a new client."""
    siege = Siege(tmp_path, 1)
    siege.canary = Canary("127.0.0.1:1", "t", tmp_path)
    lines = (json.dumps(asdict(turn)) for turn in turns)
    (tmp_path / "canary.jsonl").write_text("".join(f"{line}\n" for line in lines))
    siege.watch = Watch({"node": "127.0.0.1:1"}, dict)
    siege.watch._outages["node"] = outage_s
    siege.deployment = cast(ProcessesDeployment, SimpleNamespace(addresses={"node": ""}, names=lambda role: ()))
    return siege


@pytest.mark.parametrize(
    ("turn", "met", "says"),
    [
        pytest.param(Turn(0, 0, 3_000, "", 1_900), (0.0, ""), "", id="three short waits"),
        pytest.param(Turn(0, 0, 2_300, "", 2_100), (0.0, ""), "waited 2100 ms", id="a long wait"),
        pytest.param(Turn(0, 0, 900, "GroupError", 300), (0.0, ""), "GroupError", id="a failed turn"),
        pytest.param(Turn(0, 0, 900, "", 300), (2.6, ""), "a newcomer waited 2.6 s for node", id="a newcomer"),
        pytest.param(
            Turn(0, 0, 900, "", 300), (0.0, "circle: 110 letters"), "circle: 110 letters", id="a wrong answer"
        ),
    ],
)
def test_a_wait_beyond_two_seconds_and_a_wrong_answer_are_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], turn: Turn, met: tuple[float, str], says: str
) -> None:
    outage_s, wrong = met
    siege = besieged(tmp_path, [turn], outage_s)
    siege.wrong += [wrong] * bool(wrong)
    verdict = Verdict(1, 0, 0, (), 0, 0, 0, (), Stall(0, 0))
    assert _close(siege, 1, verdict) == (1 if says else 0)
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.endswith(f"worst_wait_ms={turn.waited_ms} memory=unjudged bad={1 if says else 0}")
    assert [line for line in lines if line.startswith("BAD")] == [line for line in lines if says and says in line][:1]


def test_an_attack_that_sees_a_wrong_answer_does_not_end_the_siege(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    siege, said = besieged(tmp_path, []), list[str]()

    def strike(attack: Attack, seconds: float) -> NoReturn:
        raise AssertionError("a lie was stored")

    monkeypatch.setattr(siege, "strike", strike)
    monkeypatch.setattr(siege, "_supervise", tuple)
    siege.report(ATTACKS[0], 1.0, said.append)
    assert siege.wrong == [f"{ATTACKS[0].name}: a lie was stored"]
    assert "a lie was stored" in said[0]


def test_attacks_are_found_by_name() -> None:
    assert named(ATTACKS[0].name) is ATTACKS[0]
    with pytest.raises(ValueError, match=ATTACKS[0].name):
        named("unknown")
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
