"""The settings pages say what the declarations say."""

from pathlib import Path

import pytest

from sharegroups import config
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_settings_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), f"docs/reference/{path.name} is stale; run: make docs"


def test_every_setting_of_a_client_stands_once_on_its_page() -> None:
    page = (FOLDER / "client-settings.md").read_text(encoding="utf-8")
    for setting in {*config.CONSUMER, *config.PRODUCER, *config.ADMIN}:
        assert page.count(f"\n| `{setting.name}` | ") == 1
