"""Alerts as Prometheus evaluates them: `promtool test rules` on series that a test gives, minute by minute; and what
`promtool check metrics` says of the names that a process serves."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

BOUND_S: Final = 60
_FIRING: Final = 'ALERTS{alertstate="firing"}'
_SECONDS: Final = {"h": 3_600, "m": 60, "s": 1}
#: Labels that every firing alert has, which only say that it fires.
_MARKS: Final = frozenset({("__name__", "ALERTS"), ("alertstate", "firing")})
#: The labels that Prometheus adds to samples from the pipeline's pod.
SCRAPED: Final = {"namespace": "ns", "job": "ns/sharegroups-pipeline", "pod": "pipeline-0"}

Labels = frozenset[tuple[str, str]]
Series = Mapping[tuple[str, Labels], Sequence[float | None]]


def assert_without_remarks(exposition: str) -> None:
    """Assert that `promtool check metrics` has nothing to say about the text that a process serves at /metrics."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: it checks the metrics")
    words = [promtool, "check", "metrics"]
    done = subprocess.run(words, input=exposition, capture_output=True, text=True, timeout=BOUND_S, check=False)
    remarks = done.stdout + done.stderr
    assert not remarks, remarks
    assert done.returncode == 0


def labelled(**labels: str) -> Labels:
    """Return the labels of a series or of an alert."""
    return frozenset(labels.items())


def assert_fires(folder: Path, rules: Path, series: Series, minute: int, expected: Iterable[Labels]) -> None:
    """Assert that exactly these alerts of the rules fire at a minute, by alertname and labels.

    `rules` is a PrometheusRule, as it is applied. A series has a value for each minute, from 0; None where absent.
    """
    assert_each_fires(folder, rules, {"": (series, minute, expected)})


def assert_each_fires(
    folder: Path, rules: Path, cases: Mapping[str, tuple[Series, int, Iterable[Labels]]], only: str = ""
) -> None:
    """Like `assert_fires`, but for many cases at once: by their names the series, the minute, and the alerts that
    fire. `only`: the name of the one group of rules that is evaluated; "" for all."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: it evaluates the alerts")
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["spec"]["groups"]
    groups = [group for group in groups if only in ("", group["name"])]
    assert groups, f"{rules.name} has no group {only}"
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    tests = []
    for name, (series, minute, expected) in cases.items():
        firing = [{"labels": _written("ALERTS", one | {("alertstate", "firing")}), "value": 1} for one in expected]
        given = [
            {"series": _written(*of), "values": " ".join("_" if one is None else str(one) for one in values)}
            for of, values in series.items()
        ]
        asked = [{"expr": _FIRING, "eval_time": f"{minute}m", "exp_samples": firing}]
        tests.append({"name": name, "interval": "1m", "input_series": given, "promql_expr_test": asked})
    wanted: dict[str, Any] = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump(wanted))
    words = [promtool, "test", "rules", "test.yaml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=BOUND_S * 5, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _written(name: str, labels: Labels) -> str:
    inner = ", ".join(f'{key}="{value}"' for key, value in sorted(labels))
    return f"{name}{{{inner}}}"


def firing(
    folder: Path, rules: Path, series: Mapping[tuple[str, Labels], Sequence[str]], interval_s: int, count: int
) -> dict[Labels, list[int]]:
    """Return the samples at which each alert of these rules fires, by its alertname and labels.

    `series` has a sample each `interval_s` in promtool's notation: a number, `_` for none, `stale` for the mark of a
    failed scrape. Raises FileNotFoundError without promtool, and RuntimeError with promtool's output when it could not
    evaluate the rules.
    """
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["spec"]["groups"]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    asked = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{interval_s}s",
        "tests": [
            {
                "interval": f"{interval_s}s",
                "input_series": [
                    {"series": _written(name, labels), "values": " ".join(values)}
                    for (name, labels), values in series.items()
                ],
                # No sample is expected, so promtool prints the actual ones.
                "promql_expr_test": [
                    {"expr": _FIRING, "eval_time": f"{at * interval_s}s", "exp_samples": []} for at in range(count)
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(asked))
    words = ["promtool", "test", "rules", "test.yaml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=BOUND_S, check=False)
    output = done.stdout + done.stderr
    if (done.returncode == 0) == ("FAILED" in output) or ("got: " not in output and done.returncode):
        raise RuntimeError(f"promtool could not evaluate the alerts of {rules.name}: {output[:2_000]}")
    found: dict[Labels, list[int]] = {}
    for when, got in re.findall(r"time: (\S+),\s+exp: nil\s+got: (.*)", output):
        at = sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([hms])", when)) // interval_s
        for inner in re.findall(r"\{(.*?)\} 1E\+00", got):
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', inner))
            found.setdefault(frozenset(labels.items() - _MARKS), []).append(at)
    return found
