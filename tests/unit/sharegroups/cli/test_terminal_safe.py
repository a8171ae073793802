"""No command prints foreign names to a terminal unescaped: each runs once on names full of control characters."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from kip932.log_lines import LineFormatter
from kip932.printable import printable
from share_metrics.__main__ import main as share_metrics_main
from share_node import health
from share_node.node import serve
from sharegroups.cli.group import ToolGroup
from tests.support.fake_cluster.cluster import FakeCluster

from .conftest import sharegroups

EVIL = "e\x1b[2J\x07\x9b31m\u2028\u202e\u200f\u200e\u061cv"
SHOWN = printable(EVIL)


@pytest.mark.rule("CT-82")
@pytest.mark.parametrize(
    "words",
    [
        "topics list",
        "topics describe",
        "topics describe EVIL",
        "topics describe EVIL-not",
        "topics create EVIL",
        "topics alter EVIL --partitions 1",
        "topics delete-records EVIL:0:7",
        "groups list",
        "groups list --state",
        "groups describe --group EVIL",
        "groups describe --group EVIL --members --verbose",
        "groups describe --group EVIL --state",
        "groups describe --all-groups --offsets",
        "groups describe --group EVIL-not",
        "groups explain --group EVIL --topic EVIL:9 --offset 0",
        "groups delete --group EVIL",
        "groups delete-offsets --group EVIL --topic EVIL",
        "groups reset-offsets --group EVIL --topic EVIL --to-earliest --dry-run",
        "configs describe --group EVIL",
        "configs describe --topic EVIL --all",
        "configs alter --topic EVIL --add-config EVIL=1",
        "configs alter --topic EVIL --delete-config EVIL",
        "dlq list --topic EVIL",
        "dlq list --group EVIL",
        "dlq show --topic EVIL:0 --offset 0",
        "dlq redrive --topic EVIL --all --dry-run",
        "dlq purge --topic EVIL --all --dry-run",
        "transactions describe --transactional-id EVIL",
        "transactions abort --transactional-id EVIL",
        "acls list",
        "acls add --allow-principal User:EVIL --group EVIL",
        "acls add --allow-principal EVIL --group EVIL",
        "acls add --allow-principal User:EVIL --topic EVIL",
        "acls remove --group EVIL --force",
        "acls explain --principal User:EVIL --operation Read --group EVIL",
        "consume --topic EVIL-not --group EVIL --timeout-ms 1",
        "produce EVIL-not",
        "EVIL",
        "topics EVIL",
        "topics list --EVIL",
    ],
)
def test_a_command_shows_names_escaped(fake: FakeCluster, words: str) -> None:
    fake.add_topic(EVIL, 1)
    fake.add_member("m" + EVIL, EVIL)
    fake.acls.add(
        Acl(ResourceType.GROUP, EVIL, PatternType.LITERAL, f"User:{EVIL}", EVIL, Operation.READ, Permission.DENY)
    )
    with capture_logs():  # logs of the fake cluster's services, which run in this process
        result = sharegroups(*(word.replace("EVIL", EVIL) for word in words.split()), stdin="a\n")
    said = result.stdout + result.stderr
    assert printable(said, keep="\n") == said
    assert SHOWN in said or json.dumps(EVIL)[1:-1] in said, "it would be no proof"


@click.group(cls=ToolGroup)
def tools() -> None: ...


@tools.command()
@click.option("--kind", type=click.Choice(["plain", "usage"]))
def refuse(kind: str) -> None:
    raise (click.UsageError if kind == "usage" else click.ClickException)(f"no entry of {EVIL}\nsecond line")


@pytest.mark.rule("CT-82")
@pytest.mark.parametrize("kind", ["plain", "usage"])
def test_an_error_that_click_prints_is_escaped_and_keeps_its_lines(kind: str) -> None:
    result = CliRunner().invoke(tools, ["refuse", "--kind", kind])
    assert f"Error: no entry of {SHOWN}\nsecond line\n" in result.stderr
    assert printable(result.stderr, keep="\n") == result.stderr


@pytest.mark.rule("CT-82")
def test_a_line_of_a_worker_s_log_is_escaped_with_its_traceback() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        record = logging.LogRecord("w", logging.ERROR, __file__, 1, "job %s", (EVIL,), (ValueError, error, None))
    line = LineFormatter(text=True, service="worker").format(record)
    assert f"job {SHOWN}\n" in line
    assert f"ValueError: {SHOWN}" in line
    assert printable(line, keep="\n") == line
    line = LineFormatter(text=False, service="worker").format(record)
    assert printable(line) == line
    assert json.loads(line)["event"] == f"job {EVIL}".partition("\n")[0]


@pytest.mark.rule("CT-82")
def test_commands_and_processes_of_the_services_say_what_they_found_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Covers of CT-82 the messages that end a command or process; not tables, log lines, JSON or undecodable bytes."""
    wrong = tmp_path / "settings.toml"
    wrong.write_text(f"{json.dumps(EVIL)} = 1\n")
    said = [sharegroups("demo", "--input", EVIL).stderr, sharegroups("scaler", "--config", str(wrong)).stderr]
    serve.main(["partition_leader", f"{EVIL}=1"])
    health.main([], {f"SHAREGROUPS_{EVIL}": "1"})
    said += capsys.readouterr().err.splitlines()
    page = ["--data", f"{tmp_path}/{EVIL}", "--out", f"{tmp_path}/out"]
    monkeypatch.setattr("sys.argv", ["share_metrics", "report", *page])
    with pytest.raises(SystemExit):
        share_metrics_main()
    said.append(capsys.readouterr().err)
    assert len(said) == 5
    for text in said:
        assert text.startswith(("Error: ", "Usage: "))
        assert printable(text, keep="\n") == text
        assert SHOWN in text, "it would be no proof"
