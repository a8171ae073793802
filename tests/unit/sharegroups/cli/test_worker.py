"""`sharegroups worker`: how it finds the worker, and its message about a typo."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharegroups.cli.main import main
from sharegroups.cli.output import UsageFailure
from sharegroups.cli.worker import find_worker
from sharegroups.worker import Worker

SOURCE = """
from sharegroups import Worker

class Shop:
    worker = Worker(bootstrap_servers="127.0.0.1:1", group_id="shop")

worker = Shop.worker
number = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mailshop").mkdir()
    (tmp_path / "mailshop" / "mail.py").write_text(SOURCE)
    (tmp_path / "mailshop" / "broken.py").write_text("import none_such_package\n")
    (tmp_path / "mailshop" / "unread.py").write_text("def send(:\n")
    (tmp_path / "mailshop" / "outer.py").write_text("from mailshop import inner\n")
    (tmp_path / "mailshop" / "inner.py").write_text("raise RuntimeError('no\\nconfig')\n")
    (tmp_path / "mailshop" / "unset.py").write_text(
        "from sharegroups import Worker\n\nworker = Worker(bootstrap_server='127.0.0.1:1', group_id='shop')\n"
    )
    (tmp_path / "mailshop" / "unjob.py").write_text(
        f"{SOURCE}\n\n@worker.job('mails', retry=5)\ndef send(_: bytes) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.rule("CL-129")
def test_the_current_folder_is_on_the_path_and_attributes_may_be_nested(folder: Path) -> None:
    assert isinstance(find_worker("mailshop.mail:worker"), Worker)
    assert find_worker("mailshop.mail:Shop.worker") is find_worker("mailshop.mail:worker")


@pytest.mark.rule("CL-129")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("mailshop.mail:wroker", "mailshop.mail has no 'wroker'. Did you mean mailshop.mail:worker?"),
        ("mailshop.mial:worker", "there is no module 'mailshop.mial' in "),
        ("mialshop.mail:worker", "there is no module 'mialshop' in "),
        ("mailshop.mail", "names no worker. Name it as module:attribute, for example shop.mail:worker"),
        ("mailshop.mail:", "names no worker"),
        ("mail.py:worker", "there is no module 'mail.py'. Did you mean mail:worker?"),
        ("./mailshop/mail.py:worker", "there is no module './mailshop/mail.py'. Did you mean mailshop.mail:worker?"),
        ("../mail.py:worker", "there is no module '../mail.py'. Name it as module:attribute"),
        ("mailshop.mail:number", "is a int, not a Worker. Did you mean mailshop.mail:worker?"),
        ("json:dumps", "is a function, not a Worker; json defines no Worker"),
    ],
)
def test_a_typo_is_reported_with_what_is_there(folder: Path, target: str, said: str) -> None:
    with pytest.raises(UsageFailure) as caught:
        find_worker(target)
    assert said in str(caught.value)
    ended = CliRunner().invoke(main, ["worker", target])
    assert ended.exit_code == 1


@pytest.mark.rule("CL-129")
@pytest.mark.parametrize(
    ("words", "environment", "settled"),
    [
        ("", None, ("file:1", "of-the-file")),
        ("", "environment:1", ("file:1", "of-the-file")),
        ("--bootstrap-server option:1 --group option", "environment:1", ("option:1", "option")),
    ],
)
def test_settings_of_a_file_are_above_the_workers_and_below_the_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, environment: str | None, settled: tuple[str, str]
) -> None:
    ran: list[dict[str, object]] = []
    monkeypatch.setattr(Worker, "run", lambda worker: ran.append(worker.settings))
    monkeypatch.setenv("SHAREGROUPS_BOOTSTRAP", environment or "")
    if environment is None:
        monkeypatch.delenv("SHAREGROUPS_BOOTSTRAP")
    file = folder / "a.properties"
    file.write_text("# of alice\nsecurity.protocol=SSL\nbootstrap.servers = file:1\ngroup.id=of-the-file\n")
    ended = CliRunner().invoke(main, ["worker", "mailshop.mail:worker", "--command-config", str(file), *words.split()])
    assert ended.exit_code == 0, ended.output
    (settings,) = ran
    assert settings == {"bootstrap.servers": settled[0], "group.id": settled[1], "security.protocol": "SSL"}


@pytest.mark.rule("CL-129")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ssl.ca.loction=x", "Did you mean 'ssl.ca.location'?"),
        ("max.poll.records=5", "max.poll.records cannot be set for a Worker: the worker decides it"),
        ("no equals sign", "'no equals sign' is not name=value"),
    ],
)
def test_a_mistake_in_the_file_is_named(folder: Path, line: str, said: str) -> None:
    (folder / "a.properties").write_text(f"{line}\n")
    words = ["worker", "mailshop.mail:worker", "--command-config", "a.properties"]
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 1
    assert said in ended.stderr


@pytest.mark.rule("CL-129")
@pytest.mark.parametrize(
    ("module", "first", "last"),
    [
        ("broken", "Traceback", "ModuleNotFoundError: No module named 'none_such_package'"),
        ("unread", "  File ", "SyntaxError: invalid syntax (unread.py, line 1)"),
        ("outer", "Traceback", "RuntimeError: no config"),
    ],
)
def test_what_a_module_raises_is_shown_from_its_own_frames_on(folder: Path, module: str, first: str, last: str) -> None:
    ended = CliRunner().invoke(main, ["worker", f"mailshop.{module}:worker"])
    lines = ended.stderr.splitlines()
    assert ended.exit_code == 1
    assert lines[0].startswith(first)
    assert lines[-1] == f"Error: mailshop.{module} could not be imported: {last}"
    files = [Path(line.split('"')[1]) for line in lines if line.startswith("  File ")]
    assert files[0] == folder / "mailshop" / f"{module}.py"
    assert {file.parent for file in files} == {folder / "mailshop"}


@pytest.mark.rule("CL-129")
@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("unset", 3, "Did you mean 'bootstrap.servers'?"),
        ("unjob", 11, "retry is 5; expected a Retry, as retry=Retry(limit=3)"),
    ],
)
def test_what_this_library_refuses_is_reported_in_one_line(folder: Path, module: str, line: int, said: str) -> None:
    ended = CliRunner().invoke(main, ["worker", f"mailshop.{module}:worker"])
    file = folder / "mailshop" / f"{module}.py"
    assert ended.exit_code == 1
    (reported,) = ended.stderr.splitlines()
    assert reported.startswith(f"Error: mailshop.{module} could not be imported: {file}, line {line}: ")
    assert reported.endswith(said)
