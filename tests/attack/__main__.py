"""`python -m tests.attack`: runs every attack once against a cluster, or random attacks for some time.

The last line is `attacks=N records=M lost=L accepted_twice=A restarts=R worst_outage_s=S peak_mib=P canary_p99_ms=T
worst_wait_ms=W memory=flat bad=B`; the exit status is 0 only if B is 0: nothing was lost or accepted twice, no turn of
the canary failed, no client waited for more than 2 s, no attack saw a wrong response, and every node's memory stayed
flat and within its maximum (runs shorter than half an hour print `unjudged` instead of `flat`).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.attack.canary import song
from tests.attack.catalogue import ATTACKS, named
from tests.attack.siege import Siege
from tests.attack.watch import MIB
from tests.chaos.signals import exit_on_sigterm
from tests.chaos.verdict import Verdict

#: How long each attack lasts if each is run once.
ONCE_S: Final = 5.0


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="see --list")
    parser.add_argument("--seconds", type=float, default=0, help="attacks by chance for so long; 0: each of them once")
    parser.add_argument("--seed", type=int, help="repeat a run's choices; made up and printed when left out")
    parser.add_argument("--out", type=Path, help="new folder for logs and books; default build/attack/<time>")
    parser.add_argument("--tls", action="store_true", help="with TLS, client certificates and access control")
    parser.add_argument("--list", action="store_true", help="say which attacks there are")
    return parser.parse_args(words)


def _say(line: str) -> None:
    print(line, flush=True)


def main(words: Sequence[str]) -> int:
    """Run or list; return the exit status."""
    asked = _arguments(words)
    if asked.list:
        for attack in ATTACKS:
            _say(
                f"{attack.name:<28}{attack.sentence} ({attack.who}{', with --tls alone' if attack.tls_only else ''}"
                f"{', only where --only names it' if attack.by_name_only else ''})"
            )
        return 0
    try:
        attacks = [named(name) for name in asked.only] or [
            each for each in ATTACKS if (asked.tls or not each.tls_only) and not each.by_name_only
        ]
        if wrong := [each.name for each in attacks if each.tls_only and not asked.tls]:
            raise ValueError(f"{', '.join(wrong)}: they need --tls; add it, or leave them out")
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    exit_on_sigterm()
    out = (asked.out or Path("build", "attack", time.strftime("%Y%m%d-%H%M%S"))).absolute()
    seed = asked.seed if asked.seed is not None else random.randrange(1_000_000)
    _say(f"--seed {seed}, logs and books in {out}")
    with Siege(out, seed, books=True, tls=asked.tls) as siege:
        if asked.seconds:
            count = siege.besiege(attacks, asked.seconds, _say)
        else:
            count = len(attacks)
            for attack in attacks:
                siege.report(attack, ONCE_S, _say)
        return _close(siege, count, siege.judge())


def _close(siege: Siege, count: int, verdict: Verdict) -> int:
    watch, nodes = siege.watch, sorted(siege.deployment.addresses)
    for name in nodes:
        _say(
            f"{name}: peak {watch.peak_bytes(name) // MIB} MiB, keeps {watch.growth(name):.2f} times in the last third "
            f"what it kept in the second, longest outage {watch.longest_outage_s()[name]:.1f} s; "
            f"medians over time {' '.join(map(str, watch.medians_mib(name)))} MiB"
        )
    sung = song(siege.canary.turns())
    bad = [*verdict.violations, *siege.wrong, *siege.harm(), *siege.waits()]
    for line in bad:
        _say(f"BAD: {line}")
    _say(f"canary: {sung}")
    _say(
        f"attacks={count} records={verdict.records} lost={verdict.lost} accepted_twice={verdict.accepted_twice} "
        f"restarts={len(siege.restarts)} worst_outage_s={max(watch.longest_outage_s().values()):.1f} "
        f"peak_mib={max(watch.peak_bytes(name) for name in nodes) // MIB} canary_p99_ms={sung.p99_ms} "
        f"worst_wait_ms={sung.worst_wait_ms} memory={siege.memory()} bad={len(bad)}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
