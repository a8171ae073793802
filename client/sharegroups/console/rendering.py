"""Makes HTML of pages: every text from outside is escaped, and its control characters are shown as escapes (CT-161)."""

from __future__ import annotations

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.runtime import Macro
from markupsafe import Markup, escape

from kip932.ids import topic_id_text
from kip932.printable import printable
from sharegroups.cli.dlq.times import time_text
from sharegroups.console.contents import brief
from sharegroups.console.strips import WORDS
from sharegroups.console.visit import Page, link
from sharegroups.insight.figures import age

#: The block of a page that is sent again while it changes.
LIVE: Final = "live"


def _shown(value: Any) -> Any:
    """Return a value of a template with its control characters as escapes; None is nothing."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _raw(text: str) -> Markup:
    """Return a text for a field of a form, which comes back as it is."""
    return escape(text.encode("utf-8", "replace").decode())


def _thousands(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _age(duration_ms: int | None) -> str:
    return "-" if duration_ms is None else str(age(duration_ms))


class Rendering:
    """The templates. `common`: values that each of them has."""

    def __init__(self, common: dict[str, Any]) -> None:
        self._environment = Environment(
            loader=PackageLoader("sharegroups.console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "raw": _raw, "time": time_text, "age": _age, "n": _thousands, "brief": brief, "topic_id": topic_id_text,
        }  # fmt: skip
        self._environment.globals |= {"link": link, "strip_words": WORDS, **common}
        macros = self._environment.get_template("parts.html").module
        self._environment.globals |= {name: each for name, each in vars(macros).items() if isinstance(each, Macro)}

    def html(self, page: Page, **values: Any) -> str:
        """Return a whole page."""
        return self._environment.get_template(page.template).render({**page.values, **values})

    def live(self, page: Page, **values: Any) -> str:
        """Return the live part of a page."""
        template = self._environment.get_template(page.template)
        return "".join(template.blocks[LIVE](template.new_context({**page.values, **values})))

    def is_live(self, page: Page) -> bool:
        """Return whether a page has a live part."""
        return LIVE in self._environment.get_template(page.template).blocks
