"""Golden transcripts: commands with their whole output and exit status, as in `transcripts/<name>.txt`.

A file contains commands, each followed by its result:

    $ sharegroups topics list
    t
    (exit 0)

Lines from standard error start with `err: `. SHAREGROUPS_WRITE_TRANSCRIPTS=1 rewrites the files; review the changes.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner
from structlog.testing import capture_logs

from sharegroups.cli.main import main

FOLDER = Path(__file__).with_name("transcripts")


def played(command: str, inexact: Sequence[tuple[str, str]] = ()) -> str:
    """Run one command; return it with its output. Text that matches a pattern in `inexact` is replaced, for parts that
    vary between runs."""
    words = [*shlex.split(command), "--bootstrap-server", "node0:9000"]
    with capture_logs():  # logs of the fake cluster's services, which run in this process
        result = CliRunner().invoke(main, words, prog_name="sharegroups")
    reported = [*result.stdout.splitlines(), *(f"err: {line}" for line in result.stderr.splitlines())]
    text = "\n".join([f"$ sharegroups {command}", *reported, f"(exit {result.exit_code})"])
    for pattern, instead in inexact:
        text = re.sub(pattern, instead, text)
    return text + "\n"


def check(name: str, commands: Sequence[str], inexact: Sequence[tuple[str, str]] = ()) -> None:
    """Assert that the commands print exactly what the transcript contains."""
    file = FOLDER / f"{name}.txt"
    text = "\n".join(played(command, inexact) for command in commands)
    if os.environ.get("SHAREGROUPS_WRITE_TRANSCRIPTS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
