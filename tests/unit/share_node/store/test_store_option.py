"""The store's password comes from the variable that --password-env names, and from nowhere else."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from share_node import commands
from share_node.store.store_option import StoreChoice, url_with_password

URL = "redis://worker@127.0.0.1:7000/2"


def test_the_password_of_the_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "p:/@ss")
    assert url_with_password(URL, "STORE_PASSWORD") == "redis://worker:p%3A%2F%40ss@127.0.0.1:7000/2"
    assert url_with_password(URL, "") == URL


def test_what_gives_no_password_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORE_PASSWORD", raising=False)
    with pytest.raises(click.UsageError, match="--password-env STORE_PASSWORD: the environment has no variable of"):
        url_with_password(URL, "STORE_PASSWORD")
    with pytest.raises(click.UsageError, match="is for the store given by --store, but none is given"):
        url_with_password(None, "STORE_PASSWORD")
    monkeypatch.setenv("STORE_PASSWORD", "secret")
    with pytest.raises(click.UsageError, match="it holds a password, and another one was given beside it") as refused:
        url_with_password("redis://:known@127.0.0.1:7000", "STORE_PASSWORD")
    assert "secret" not in str(refused.value)
    assert "known" not in str(refused.value)


def test_a_variable_that_nodes_would_take_for_a_setting_is_refused_with_a_name_to_take() -> None:
    environ = {"SHAREGROUPS_STORE_PASSWORD": "secret"}
    for words in (["up"], ["init"], ["state", "repair"], ["backup", "x"], ["restore", "x"]):
        given = [*words, "--store", URL, "--password-env", "SHAREGROUPS_STORE_PASSWORD"]
        refused = CliRunner().invoke(commands.main, given, env=environ)
        assert refused.exit_code == 1, words
        assert "begin with SHAREGROUPS_ are settings of a node; use another name" in refused.stderr.replace("\n", " ")
        assert "such as STORE_PASSWORD" in refused.stderr.replace("\n", " ")


@pytest.mark.rule("CM-200", "CT-140")
def test_the_environment_alone_names_no_store_to_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHAREGROUPS_STORE_URL", "redis://prod:1")
    with_url, without = tmp_path / "a.toml", tmp_path / "b.toml"
    with_url.write_text('[store]\nurl = "redis://staging:1"\n')
    without.write_text("")
    named = [StoreChoice("redis://h:1"), StoreChoice(data=tmp_path), StoreChoice(config=with_url)]
    assert [each.is_named for each in named] == [True] * 3
    assert StoreChoice(config=with_url).url() == "redis://staging:1"
    assert not any(
        each.is_named for each in (StoreChoice(), StoreChoice(password_env="P"), StoreChoice(config=without))
    )
    for words in (["state", "repair", "--choose", "skip"], ["restore", str(tmp_path)]):
        refused = CliRunner().invoke(commands.main, [*words, "--config", str(without)])
        assert refused.exit_code == 1
        assert "--config FILE with store.url" in refused.stderr
