"""Alerts as Prometheus evaluates them: `promtool test rules` over series that a test gives, minute by minute."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

BOUND_S: Final = 60
#: The labels that Prometheus gives to what it scrapes from the pod of the pipeline.
SCRAPED: Final = {"namespace": "ns", "job": "ns/sharegroups-pipeline", "pod": "pipeline-0"}

Labels = frozenset[tuple[str, str]]
Series = Mapping[tuple[str, Labels], Sequence[float | None]]


def labelled(**labels: str) -> Labels:
    """Labels of a series or of an alert."""
    return frozenset(labels.items())


def assert_fires(folder: Path, rules: Path, series: Series, minute: int, expected: Iterable[Labels]) -> None:
    """Assert that of these rules exactly these alerts fire at a minute, by alertname and labels.

    `rules` is a PrometheusRule, as it is applied. A series has a value for each minute from 0 on; None: it is absent.
    """
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: it evaluates the alerts")
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["spec"]["groups"]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    firing = [{"labels": _written("ALERTS", one | {("alertstate", "firing")}), "value": 1} for one in expected]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": _written(name, labels), "values": " ".join("_" if one is None else str(one) for one in values)}
            for (name, labels), values in series.items()
        ],
        "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{minute}m", "exp_samples": firing}],
    }
    asked: dict[str, Any] = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(asked))
    words = [promtool, "test", "rules", "test.yaml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _written(name: str, labels: Labels) -> str:
    inner = ", ".join(f'{key}="{value}"' for key, value in sorted(labels))
    return f"{name}{{{inner}}}"
