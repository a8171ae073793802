"""The settings page says what the declarations say."""

from tools.reference import PAGE, page


def test_the_settings_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/reference/settings.md is stale; run: make docs"
