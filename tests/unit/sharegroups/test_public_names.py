"""The names that `sharegroups` exports: everything it lists, and every error that a public method mentions."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sharegroups
from sharegroups import aio, errors

CLASSES = [value for value in vars(aio).values() if inspect.isclass(value)] + [
    getattr(sharegroups, name) for name in sharegroups.__all__ if name not in errors.__all__ and name != "aio"
]
DOCS = Path(__file__).resolve().parents[3] / "docs"


def _named_errors(kind: type) -> Iterator[str]:
    public = [method for name, method in inspect.getmembers(kind) if not name.startswith("_")]
    for documented in [kind, *public]:
        yield from re.findall(r"\b[A-Z]\w*Error\b", inspect.getdoc(documented) or "")


@pytest.mark.parametrize("name", sharegroups.__all__)
def test_every_listed_name_can_be_imported(name: str) -> None:
    assert getattr(sharegroups, name).__name__.endswith(name)
    assert name in dir(sharegroups)


def test_what_the_how_tos_use_inside_a_handler_is_shown_with_its_import() -> None:
    for page in ("workers.md", "from-celery-rq-dramatiq.md"):
        text = (DOCS / "howto" / page).read_text(encoding="utf-8")
        imported = set(re.findall(r"\w+", " ".join(re.findall(r"from sharegroups import ([\w, ]+)", text))))
        assert "current_job" in imported
        assert imported <= set(sharegroups.__all__)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_error_that_a_public_method_names_can_be_imported(kind: type) -> None:
    reported = {name for name in _named_errors(kind) if not hasattr(builtins, name)}
    assert reported <= set(sharegroups.__all__)


def test_the_clients_do_report_errors() -> None:
    assert "IllegalStateError" in set(_named_errors(sharegroups.ShareConsumer))
    assert "BufferFullError" in set(_named_errors(sharegroups.Producer))


def test_every_error_class_of_the_client_is_listed() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert classes == set(errors.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        _ = sharegroups.Consumer  # type: ignore[attr-defined] # the test is about this mistake


def test_the_start_of_the_command_imports_nothing_heavy() -> None:
    program = "import sys, sharegroups.cli; print({'grpc', 'google', 'click', 'asyncio'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
