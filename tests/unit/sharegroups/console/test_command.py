"""`sharegroups console`: what it refuses before it listens, how it serves, and what it prints."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sharegroups.cli.interrupts import Terminated
from sharegroups.cli.main import main
from sharegroups.console import server
from sharegroups.console.app import Console


class Served:
    """Takes the place of the server: keeps what it was given, and ends as a signal does."""

    def __init__(self, ends: BaseException | None = None) -> None:
        self.ends = ends or KeyboardInterrupt()
        self.console: Console | None = None
        self.tls: object = None

    async def __call__(self, console: Console, listener: socket.socket, tls: object, started: Any) -> None:
        self.console, self.tls = console, tls
        started()
        listener.close()
        console._close()
        raise self.ends


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    made = Served()
    monkeypatch.setattr(server, "serve", made)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["console", "--port", "0", *words, "--bootstrap-server", "node0:9000"])


def file(folder: Path, **settings: str) -> str:
    path = folder / "client.properties"
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.rule("CT-161", "CT-162")
def test_on_this_machine_no_one_signs_in(served: Served) -> None:
    said = run()
    assert said.exit_code == 0
    assert served.console is not None
    options = served.console.options
    assert said.stdout == f"console http://127.0.0.1:{options.port}/ of the cluster at node0:9000; Ctrl-C stops it\n"
    assert (options.local, options.link, options.secure, options.on_loopback) == ("User:ANONYMOUS", "", False, True)


@pytest.mark.rule("CT-162")
@pytest.mark.parametrize(
    "settings", [{"sasl_username": "ann", "sasl_password": "secret"}, {"ssl_certificate_location": "ann.crt"}]
)
def test_with_credentials_a_link_signs_in(served: Served, tmp_path: Path, settings: Mapping[str, str]) -> None:
    said = run("--command-config", file(tmp_path, **settings))
    assert served.console is not None
    options = served.console.options
    assert options.local == ""
    assert said.stdout == f"console http://127.0.0.1:{options.port}/sign-in?link={options.link}\n"
    assert len(options.link) > 40
    assert "has your rights" in said.stderr
    assert "sasl.password" not in options.settings
    assert options.own_name in ("User:ann", "user of ann.crt")


@pytest.mark.rule("CT-162")
@pytest.mark.parametrize("words", [["--behind-tls-proxy"], ["--allowed-host", "console.example"]])
def test_what_others_can_reach_has_no_link(served: Served, tmp_path: Path, words: list[str]) -> None:
    said = run("--command-config", file(tmp_path, sasl_username="ann", sasl_password="secret"), *words)
    assert served.console is not None
    options = served.console.options
    assert (options.local, options.link, options.own) == ("", "", {})
    assert "its users sign in" in said.stdout
    assert "is not used" in said.stderr
    assert run(*words).exit_code == 0
    assert served.console.options.local == ""


@pytest.mark.rule("CT-161", "CT-162")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--certificate", __file__], "belong together"),
        (["--audit-log", "nowhere/audit.log"], "cannot be written: No such file or directory"),
        (["--host", "192.0.2.1", "--behind-tls-proxy"], "cannot listen on 192.0.2.1:0"),
    ],
)
def test_what_it_refuses(served: Served, words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 1
    assert said in result.stderr
    assert served.console is None


@pytest.mark.rule("CT-161")
def test_a_port_in_use_is_named(served: Served) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["console", "--port", str(port)])
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


@pytest.mark.rule("CT-161")
def test_a_wrong_setting_and_a_missing_package_are_named(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "unknown setting 'no.such'" in run("--command-config", file(tmp_path, no_such="1")).stderr

    monkeypatch.setitem(sys.modules, "starlette", None)
    result = run()
    assert result.exit_code == 1
    assert "pip install '.[cli,console]'" in result.stderr
    assert served.console is None


@pytest.mark.rule("CT-161")
def test_exit_codes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.ends = Terminated()
    assert run().exit_code == 143
    served.ends = OSError("bad certificate")
    result = run()
    assert result.exit_code == 1
    assert "The console cannot serve: bad certificate" in result.stderr


@pytest.mark.rule("CT-165")
def test_the_audit_log_is_appended_to(served: Served, tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text("earlier\n")
    run("--audit-log", str(log), "--read-only")
    assert log.read_text() == "earlier\n"
    assert served.console is not None
    assert served.console.options.read_only
