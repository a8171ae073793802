"""Every command that opens a store that serves TLS, requires client certificates and has users: `--config` and the
environment say how (CM-200)."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from share_node import commands
from tests.support.store_tls import SecuredStore
from tests.support.store_users import GuardedServer


class Place:
    """The store, its endpoint, and a settings file for each user."""

    def __init__(self, store: GuardedServer, made: SecuredStore, port: int, folder: Path) -> None:
        self.store, self.made, self.port, self.folder = store, made, port, folder

    def settings(self, user: str) -> dict[str, str]:
        """Return the settings store.* of a user."""
        password = self.folder / f"{user}.password"
        password.write_text(f"{self.store.passwords[user]}\n")
        files = self.made.client
        return {
            "store.url": f"rediss://127.0.0.1:{self.port}",
            "store.username": user,
            "store.password.location": str(password),
            "store.ssl.ca.location": str(files.authorities),
            "store.ssl.certificate.location": str(files.certificate),
            "store.ssl.key.location": str(files.key),
        }

    def file(self, user: str, **changed: str) -> str:
        """Write a user's settings file; return its path."""
        path = self.folder / f"{user}.toml"
        given = self.settings(user) | {f"store.{name.replace('_', '.')}": value for name, value in changed.items()}
        path.write_text("".join(f'{name} = "{value}"\n' for name, value in given.items()))
        return str(path)

    def run(self, *words: str, environ: dict[str, str] | None = None) -> Result:
        """Run a command in this process."""
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ResourceWarning
            )  # the end of a process closes what the loop had no time for
            done = CliRunner().invoke(commands.main, words, env=environ)
            gc.collect()
        for password in self.store.passwords.values():
            assert password not in done.output
        return done

    def succeeds(self, user: str, *words: str) -> str:
        """Run a command that must succeed with the user's file, and without a refusal by the store."""
        done = self.run(*words, "--config", self.file(user))
        assert (done.exit_code, asyncio.run(self.store.denied())) == (0, []), done.output
        return done.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("store")
    store, made = asyncio.run(GuardedServer().start()), SecuredStore(folder)
    try:
        with made.in_front_of(store.server.port) as port:
            yield Place(store, made, port, folder)
    finally:
        store.stop()


@pytest.mark.rule("CM-200", "CT-140")
def test_each_command_reaches_the_store_by_the_settings_file_of_a_node(place: Place) -> None:
    assert "Made cluster" in place.succeeds("sharegroups-init", "init")
    assert "0 findings" in place.succeeds("sharegroups-state", "state", "check")
    assert "Nothing is stored" in place.succeeds("sharegroups-state", "state", "dump", "--kind", "sgs")
    assert "Nothing waits" in place.succeeds("sharegroups-state", "state", "repair")
    words = ("state", "skip", "--kind", "meta", "--entry", "1-7", "--config", place.file("sharegroups-state"))
    assert "{meta}:log has no entry 1-7" in place.run(*words).output
    saved = str(place.folder / "saved")
    assert "Saved 0 topics" in place.succeeds("sharegroups-backup", "backup", saved)
    asyncio.run(place.store.admin(("FLUSHALL",)))
    assert "Restored 0 topics" in place.succeeds("sharegroups-restore", "restore", saved)


@pytest.mark.rule("CM-200", "CT-140")
def test_the_environment_of_a_node_says_it_too_but_does_not_choose_what_is_written(place: Place) -> None:
    names = {f"SHAREGROUPS_{name.replace('.', '_').upper()}": name for name in place.settings("sharegroups-init")}

    def environ(user: str) -> dict[str, str]:
        return {variable: place.settings(user)[name] for variable, name in names.items()}

    assert place.run("init", environ=environ("sharegroups-init")).exit_code == 0
    assert "0 findings" in place.run("state", "check", environ=environ("sharegroups-state")).output
    saved = str(place.folder / "saved-too")
    done = place.run("backup", saved, environ=environ("sharegroups-backup"))
    assert f"Saving the store of rediss://127.0.0.1:{place.port}; --store or --data names another" in done.output
    assert done.exit_code == 0
    done = place.run("restore", saved, environ=environ("sharegroups-restore"))
    assert (done.exit_code, "give either --store URL or --data DIR" in done.output) == (1, True)
    both = place.run("state", "check", "--data", saved, "--config", place.file("sharegroups-state"))
    assert (both.exit_code, "not both" in both.output) == (1, True)


@pytest.mark.rule("CM-200", "CM-195")
@pytest.mark.parametrize(
    "words", [["init", "--wait", "1"], ["state", "check"], ["backup", "saved"]], ids=lambda at: at[0]
)
def test_what_is_wrong_is_said_with_the_file_and_the_setting(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    user = f"sharegroups-{words[0]}"
    others, wrong = tmp_path / "others.crt", tmp_path / "wrong"
    others.write_bytes(SecuredStore(tmp_path).authority.certificate)
    wrong.write_text("not-the-password-4711")
    for changed, said in (
        ({"ssl_ca_location": str(others)}, f"not issued by an authority in store.ssl.ca.location={others}"),
        ({"ssl_ca_location": "nowhere.crt"}, "store.ssl.ca.location=nowhere.crt: it cannot be used (No such file"),
        ({"ssl_certificate_location": "nowhere.crt"}, "store.ssl.certificate.location=nowhere.crt and store.ssl.key"),
        ({"password_location": "nowhere"}, "store.password.location=nowhere: it cannot be read"),
        ({"password_location": str(wrong)}, f"the password is from store.password.location={wrong}"),
        ({"url": f"redis://127.0.0.1:{place.port}"}, "expected rediss://"),
    ):
        done = place.run(*words, "--config", place.file(user, **changed))
        assert done.exit_code == 1
        assert said in done.output
        assert wrong.read_text() not in done.output


@pytest.mark.rule("CM-200", "CM-195")
def test_a_store_without_tls_says_nothing_and_the_error_what_that_may_mean(place: Place) -> None:
    changed = {"url": f"rediss://127.0.0.1:{place.store.server.port}"}
    done = place.run("state", "check", "--config", place.file("sharegroups-state", **changed))
    assert done.exit_code == 1
    assert "no answer (perhaps nothing there speaks TLS; if the store has none, its URL is redis://" in done.output
