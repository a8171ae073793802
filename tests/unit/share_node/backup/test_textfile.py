"""The metrics of a backup in a file, and the alerts on a missed one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from shard_runtime.record_log.protocol import LogError
from share_node.backup import commands
from share_node.backup.manifest import Manifest, Segment
from share_node.backup.segments import BackupFilesError
from share_node.backup.textfile import check_textfile, write_textfile
from share_node.store.store_option import StoreChoice
from sharegroups.cli.main import main
from tests.support.promtool import Labels, Series, assert_each_fires, assert_without_remarks, labelled

MANIFEST: Final = Manifest("b", "c", 5_000, 7_500, "x", 3, 40, 2, 1, (), (Segment("segment-000001", 900, "0", 4),))
RULES: Final = Path(__file__).parents[4] / "deploy/kubernetes/components/monitoring/rules.yaml"


def read(path: Path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {
        sample.name.removeprefix("sharegroups_backup_"): sample.value for each in families for sample in each.samples
    }


@pytest.mark.rule("CM-229")
def test_the_file_says_when_the_backup_began_and_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "sharegroups.prom"
    path.write_text("of an earlier backup")
    check_textfile(path)
    write_textfile(path, MANIFEST)
    assert read(path) == {
        "last_success_timestamp_seconds": 5.0,
        "duration_seconds": 2.5,
        "size_bytes": 900.0,
        "entries": 40.0,
        "damaged_entries": 1.0,
    }
    assert [each.name for each in tmp_path.iterdir()] == ["sharegroups.prom"], "no half of a file stays"


@pytest.mark.rule("CM-174")
def test_prometheus_own_check_has_no_remark_on_the_file(tmp_path: Path) -> None:
    write_textfile(tmp_path / "sharegroups.prom", MANIFEST)
    assert_without_remarks((tmp_path / "sharegroups.prom").read_text(encoding="utf-8"))


@pytest.mark.rule("CM-229")
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupFilesError, match=r"there is no directory .*none to write a.prom into; make it"):
        check_textfile(tmp_path / "none" / "a.prom")
    with pytest.raises(BackupFilesError, match="is a directory; give another file with --textfile"):
        check_textfile(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, take: Callable[[], Manifest]) -> Any:
    """Run `sharegroups backup --textfile`, with this in place of the reading of a store."""

    @contextlib.asynccontextmanager
    async def store(where: StoreChoice) -> AsyncIterator[None]:
        yield

    async def taken(*_: object) -> Manifest:
        return take()

    monkeypatch.setattr(commands, "readable", store)
    monkeypatch.setattr(commands, "_take", taken)
    words = ["backup", str(tmp_path / "new"), "--store", "redis://h:1", "--quiet"]
    return CliRunner().invoke(main, [*words, "--textfile", str(tmp_path / "a.prom")])


@pytest.mark.rule("CM-229")
def test_the_command_writes_it_after_the_backup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = run(monkeypatch, tmp_path, lambda: MANIFEST)
    assert (result.exit_code, result.stderr) == (0, "")
    assert read(tmp_path / "a.prom")["last_success_timestamp_seconds"] == 5.0


@pytest.mark.rule("CM-229")
def test_after_a_backup_that_failed_it_is_what_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> Manifest:
        raise LogError("the store is away")

    (tmp_path / "a.prom").write_text("before")
    assert run(monkeypatch, tmp_path, fail).exit_code == 1
    assert (tmp_path / "a.prom").read_text() == "before"


@pytest.mark.rule("CM-229")
def test_a_backup_that_is_there_is_no_failure_for_want_of_its_metrics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def take() -> Manifest:
        (tmp_path / "a.prom").mkdir()
        return MANIFEST

    result = run(monkeypatch, tmp_path, take)
    assert result.exit_code == 0
    assert "the backup is whole, but" in result.stderr
    assert "cannot be written: Is a directory" in result.stderr


@pytest.mark.rule("CM-229")
def test_without_a_place_for_it_no_store_is_read(tmp_path: Path) -> None:
    words = ["backup", str(tmp_path / "new"), "--store", "redis://127.0.0.1:1", "--quiet"]
    result = CliRunner().invoke(main, [*words, "--textfile", str(tmp_path / "none" / "a.prom")])
    assert (result.exit_code, "there is no directory" in result.stderr) == (1, True)
    assert not (tmp_path / "new").exists()


# ---- the alerts

HOUR_S: Final = 3_600.0
#: How many minutes a case lasts: a little more than the alerts wait.
MINUTES: Final = 15


def ages(of: str, hours: float, cronjob: str = "") -> Series:
    """A time that lay so many hours back when the case begins, as seconds since 1970, which the case begins at."""
    labels = {"namespace": "ns", "cronjob": cronjob} if cronjob else {"instance": "host:9100"}
    return {(of, labelled(**labels)): [-hours * HOUR_S] * (MINUTES + 1)}


LAST: Final = "kube_cronjob_status_last_successful_time"
MADE: Final = "kube_cronjob_created"
FILE: Final = "sharegroups_backup_last_success_timestamp_seconds"
BACKUP: Final = "sharegroups-backup"
DRILL: Final = "sharegroups-restore-drill"


def missed(**labels: str) -> Labels:
    return labelled(alertname="ShareGroupsBackupMissed", severity="critical", **labels)


NO_DRILL: Final = labelled(alertname="ShareGroupsRestoreDrillMissed", severity="warning", namespace="ns")
CASES: Final[dict[str, tuple[Series, tuple[Labels, ...]]]] = {
    "nothing reports backups": ({}, ()),
    "the newest is of last night": ({**ages(LAST, 20, BACKUP), **ages(MADE, 900, BACKUP)}, ()),
    "it is of the night before": ({**ages(LAST, 27, BACKUP), **ages(MADE, 900, BACKUP)}, (missed(namespace="ns"),)),
    "there was none in the first night": (ages(MADE, 27, BACKUP), (missed(namespace="ns"),)),
    "the first night is to come": (ages(MADE, 3, BACKUP), ()),
    "a file says that it is of last night": (ages(FILE, 20), ()),
    "a file says that it is older": (ages(FILE, 30), (missed(),)),
    "another job is late": (ages(LAST, 900, "another"), ()),
    "the newest was restored last week": ({**ages(LAST, 190, DRILL), **ages(MADE, 900, DRILL)}, ()),
    "none was restored for longer": ({**ages(LAST, 195, DRILL), **ages(MADE, 900, DRILL)}, (NO_DRILL,)),
    "none ever was": (ages(MADE, 195, DRILL), (NO_DRILL,)),
}


@pytest.mark.rule("CM-229")
def test_an_alert_fires_where_it_should_and_only_there(tmp_path: Path) -> None:
    cases = {name: (series, MINUTES, fires) for name, (series, fires) in CASES.items()}
    assert_each_fires(tmp_path, RULES, cases, only="sharegroups-backups")
