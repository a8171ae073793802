"""Names of metrics have the prefix and follow Prometheus' conventions, and stand whole in the source (CM-174)."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.metrics_listed import Listed, listed
from tests.support.promtool import assert_without_remarks

ROOT: Final = Path(__file__).parents[2]
#: The prefix of the metrics of each kind of process, by the section of the page; services have the first.
PREFIXES: Final = {
    "": "sharegroups_",
    "Backups": "sharegroups_backup_",
    "Workers": "sharegroups_worker_",
    "The ingest of the metrics pipeline": "sharegroups_ingest_",
}
#: What Prometheus' own clients export of each process, under these names (CM-226).
STANDARD: Final = frozenset(
    {
        "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
        "process_start_time_seconds", "process_virtual_memory_bytes",
    }
)  # fmt: skip
#: Words that stand for units other than Prometheus' base units, for a statistic, or for what only histograms have.
REFUSED: Final = {
    **dict.fromkeys(("minutes", "hours", "days", "weeks", "milliseconds", "microseconds"), "not in seconds"),
    **dict.fromkeys(("ms", "us", "ns", "s", "sec", "m", "h", "d"), "a short form of a unit"),
    **dict.fromkeys(("kb", "mb", "gb", "kilobytes", "megabytes", "bits", "percent"), "not a base unit"),
    **dict.fromkeys(("avg", "max", "min", "rate", "p50", "p99"), "Prometheus computes these"),
    **dict.fromkeys(("counter", "gauge", "histogram", "summary", "num"), "says what the type says"),
    **dict.fromkeys(("count", "sum", "bucket", "created"), "names a series of a histogram"),
}
#: Words for units, which come last, but for `_total`; a timestamp is in seconds.
UNITS: Final = frozenset({"seconds", "bytes", "ratio"})


def remarks(name: str, kind: str, prefix: str = PREFIXES[""]) -> list[str]:
    """Return what is wrong with a name."""
    words = name.removesuffix("_total").split("_")
    found = [f"{word}: {REFUSED[word]}" for word in words if word in REFUSED]
    found += [f"{word} comes last" for word in words[:-1] if word in UNITS]
    if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name):
        found.append("is not in snake case")
    if not name.startswith(prefix):
        found.append(f"does not begin with {prefix}")
    if "total" in words or name.endswith("_total") != (kind == "counter"):
        found.append("_total ends the names of counters, and is in no others")
    return found


def literals(folders: tuple[str, ...]) -> set[str]:
    """Return the text constants of these folders."""
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py") if not file.stem.endswith("_pb2")]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.rule("CM-174")
def test_every_name_has_the_prefix_of_its_process_and_follows_the_conventions() -> None:
    rows = [row for row in listed() if row.name not in STANDARD]
    assert {row.section for row in rows} > PREFIXES.keys() - {""}
    found = {row.name: remarks(row.name, row.kind, PREFIXES.get(row.section, PREFIXES[""])) for row in rows}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    others = tuple(prefix for section, prefix in PREFIXES.items() if section)
    assert [row.name for row in rows if row.section not in PREFIXES and row.name.startswith(others)] == []


def exposition(rows: list[Listed]) -> str:
    """Return a text with each metric and one sample of each of its series."""
    lines: list[str] = []
    for row in rows:
        lines += [f"# HELP {row.name} Something.", f"# TYPE {row.name} {row.kind}"]
        given = [f'{label}="x"' for label in sorted(row.labels)]
        for name in sorted(row.series):
            bucket = ['le="+Inf"'] if name.endswith("_bucket") else []
            lines.append(f"{name}{{{','.join(given + bucket)}}} 1")
    return "\n".join([*lines, ""])


@pytest.mark.rule("CM-174")
def test_prometheus_own_check_has_no_remark_on_any_name() -> None:
    rows = list(listed())
    assert {"sharegroups_share_group_lag", "sharegroups_ingest_share_group_lag"} < {row.name for row in rows}
    assert_without_remarks(exposition(rows))


def test_prometheus_own_check_remarks_on_a_name_against_a_convention() -> None:
    wrong = Listed("", "sharegroups_sessions_count", "gauge", frozenset())
    with pytest.raises(AssertionError, match="sharegroups_sessions_count"):
        assert_without_remarks(exposition([wrong]))


@pytest.mark.rule("CM-226")
def test_what_is_known_of_each_process_has_the_names_that_prometheus_clients_give_it() -> None:
    assert {row.name for row in listed()} >= STANDARD


@pytest.mark.rule("CM-174")
def test_no_two_metrics_have_one_name_and_no_name_is_that_of_a_series_of_another() -> None:
    names = [name for row in listed() for name in {row.name.removesuffix("_total"), *row.series - {row.name}}]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("share_group_lag", "gauge"), ("sharegroups_load_time_ms", "histogram"), ("sharegroups_flushes", "counter"),
        ("sharegroups_lag_total", "gauge"), ("sharegroups_total_requests_total", "counter"),
        ("sharegroups_sessions_count", "gauge"), ("sharegroups_idle_ratio_avg", "gauge"),
        ("sharegroups_bytes_cached", "gauge"), ("sharegroups_days_left", "gauge"), ("sharegroups_Lag", "gauge"),
        ("sharegroups_num_shards", "gauge"), ("sharegroups__lag", "gauge"),
    ],
)  # fmt: skip
def test_a_name_against_a_convention_is_refused(name: str, kind: str) -> None:
    assert remarks(name, kind)


@pytest.mark.rule("CM-174")
def test_every_name_stands_whole_in_the_source() -> None:
    """A search for a name that an alert or a page has finds its declaration."""
    declared = literals(("services", "pipeline", "client"))
    assert [row.name for row in listed() if row.name not in declared] == []


@pytest.mark.rule("CM-174")
def test_labels_are_in_snake_case_and_none_is_prometheus_own() -> None:
    labels = {label for row in listed() for label in row.labels}
    assert {"group", "topic", "partition"} <= labels
    assert [one for one in labels if not re.fullmatch(r"[a-z]+(_[a-z]+)*", one)] == []
    assert labels & {"le", "quantile", "job", "instance", "namespace", "pod"} == set()


def test_the_page_of_upgrades_has_only_new_names_that_there_are() -> None:
    text = (ROOT / "docs" / "howto" / "upgrade.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(sharegroups_\w+)` \|", text, re.MULTILINE)
    names = {row.name for row in listed()}
    assert len(rows) > 30
    assert [new for _, new in rows if new not in names] == []
    assert [old for old, _ in rows if old in names or f"sharegroups_{old}" in names] == []
