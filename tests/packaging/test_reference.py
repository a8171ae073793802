"""The reference pages say what the declarations and docstrings say."""

from pathlib import Path

import pytest

import sharegroups
from sharegroups import aio, config
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_reference_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), f"docs/reference/{path.name} is stale; run: make docs"


def test_every_setting_of_a_client_stands_once_on_its_page() -> None:
    page = (FOLDER / "client-settings.md").read_text(encoding="utf-8")
    for setting in {*config.CONSUMER, *config.PRODUCER, *config.ADMIN}:
        assert page.count(f"\n| `{setting.name}` | ") == 1


def test_every_public_name_has_its_place_on_the_page_of_the_api() -> None:
    page = (FOLDER / "api.md").read_text(encoding="utf-8")
    for name in sharegroups.__all__:
        heading = "## sharegroups.aio" if name == "aio" else f"## {name}"
        assert (f"\n{heading}\n" in page) != (f"\n| `{name}` | " in page), name
    for name in aio.__all__:
        assert f"\n### {name}\n" in page


def test_the_page_of_the_api_tells_how_to_call_and_what_is_raised() -> None:
    page = (FOLDER / "api.md").read_text(encoding="utf-8")
    assert "\n- `poll(timeout: float | None = None) -> Messages`: " in page
    assert "\n- `await poll(timeout: float | None = None) -> Messages`" in page
    assert "\n- `await send(topic: str, value: Any = None, " in page
    assert "Raises BufferFullError, MessageTooLargeError" in page
    assert " at 0x" not in page  # no address of an object: the page is the same wherever it is made
