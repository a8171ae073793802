"""The report of a run as text, its closing line, and the exit status that follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from shard_runtime.config.process_settings import LEASE_MS
from tests.chaos.outcome import BAD, GOOD, SKIPPED, Outcome
from tests.chaos.verdict import CONSUMER

#: CM-4: a take-over after SIGKILL takes less than a lease plus this.
TAKEOVER_MS: Final = 2_000
BOUND_MS: Final = int(LEASE_MS.default) + TAKEOVER_MS


def closing_line(outcomes: Sequence[Outcome]) -> str:
    """Return the verdict on the run, as in its exit status, and the counts from the recorded histories; skipped
    experiments are not counted."""
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict is not None]
    return (
        f"experiments={len(verdicts)} records={sum(found.records for found in verdicts)} "
        f"lost={sum(found.lost for found in verdicts)} "
        f"accepted_twice={sum(found.accepted_twice for found in verdicts)} "
        f"verdict={BAD if exit_status(outcomes) else GOOD}"
    )


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """Return 0 if every driver ran something, every verdict is good and nothing was lost or accepted twice; else 1.

    Losses where docs/guarantees.md says "can be lost" are not part of a verdict.
    """
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict is not None]
    clean = all(not found.lost and not found.accepted_twice for found in verdicts)
    asked, ran = ({each.driver for each in some} for some in (outcomes, _good(outcomes)))
    return 0 if ran and ran == asked and clean and all(outcome.result != BAD for outcome in outcomes) else 1


def _good(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.result == GOOD]


def report(outcomes: Sequence[Outcome], out: Path, seconds: float = 0.0) -> str:
    """Return the whole report; its last line is the closing line. `seconds`: the run's duration, 0 if nothing was
    run."""
    lines = [
        "Chaos experiments: what was done to a running cluster, and what its users' histories say",
        "",
        *_table(outcomes),
        *_problems(outcomes),
        *_recovery_table(outcomes),
        *_restart_lines(outcomes),
        *_allowed_lines(outcomes),
        *([f"\nTook {seconds:.0f} s in all; the stores' experiments run beside the others"] if seconds else []),
        "",
        f"Histories: {out}/<experiment>/*.jsonl; judge them again with: python -m tests.chaos --judge {out}",
        closing_line(outcomes),
    ]
    return "\n".join(lines) + "\n"


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield (
        f"{'experiment':<34}{'driver':<12}{'verdict':<9}{'records':>8}{'lost':>6}{'twice':>7}{'faults':>8}"
        f"{'failed calls':>14}{'refused acks':>14}{'longest stall':>15}{'seconds':>9}  shows"
    )
    for outcome in outcomes:
        head = f"{outcome.name:<34}{outcome.driver:<12}{outcome.result:<9}"
        if (found := outcome.verdict) is None:
            yield f"{head}{outcome.reason}  ({', '.join(outcome.shows)})"
        else:
            yield (
                f"{head}{found.records:>8}{found.lost:>6}{found.accepted_twice:>7}{found.faults:>8}"
                f"{found.failed_calls:>14}{found.refused_acknowledgements:>14}{found.stall.any_ms:>12} ms"
                f"{outcome.seconds:>9.1f}  {', '.join(outcome.shows)}"
            )


def _problems(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if problems := outcome.problems():
            yield f"\n{outcome.name} (seed {outcome.seed}): {len(problems)} problems"
            yield from (f"  {problem}" for problem in problems[:20])
    if skipped := [outcome.name for outcome in outcomes if outcome.result == SKIPPED]:
        yield f"\nskipped, with the reasons above: {', '.join(skipped)}"


def _recovery_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    times: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for outcome in outcomes:
        for recovered in outcome.verdict.recovered if outcome.verdict is not None else ():
            times[outcome.name, recovered.role].append(recovered.ms)
    if not times:
        return
    yield f"\nTime to serve again after SIGKILL, in ms; lease + 2 s is {BOUND_MS}, which services keep to"
    yield f"{'experiment':<34}{'service':<20}{'kills':>6}{'median':>9}{'worst':>9}{'within':>9}"
    for (name, role), found in times.items():
        within = "" if role == CONSUMER else f"{sum(ms < BOUND_MS for ms in found)}/{len(found)}"
        yield f"{name:<34}{role:<20}{len(found):>6}{median(found):>9.0f}{max(found):>9}{within:>9}"


def _restart_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if not outcome.name.endswith("rolling-restart") or (found := outcome.verdict) is None:
            continue
        yield (
            f"\nRolling restart: {found.failed_calls} client calls failed beyond retries, "
            f"{found.refused_acknowledgements} acknowledgements were refused (their records came back); longest time "
            f"without a confirmed acknowledgement {found.stall.any_ms} ms, of one partition "
            f"{found.stall.partition_ms} ms"
        )


def _allowed_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    found = [f"{outcome.name}{outcome.allowed()}" for outcome in outcomes if outcome.allowed()]
    if found:
        yield "\nLost where docs/guarantees.md says 'can be lost', and counted nowhere else:"
        yield from (f"  {line}" for line in found)
