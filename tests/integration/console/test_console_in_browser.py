"""The console's pages in a headless Chromium: they fit a telephone, can be read, heard and used with the keyboard,
follow the cluster, and work without script.

`SHAREGROUPS_WRITE_PICTURES=1` writes the pictures of the docs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from sharegroups import Producer
from tests.integration.share_metrics.test_page_in_browser import contrast
from tests.support.node import QUICK, Cluster
from tools.screenshot import BYTES_MAX, chromium

from .world import CONSUMED, DLQ, GROUP, TOPIC, RunningConsole, consumer, fill, leave_behind, letters

DESKTOP, PHONE = (1280, 800), (390, 844)
IMAGES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
#: The pages by the name of their picture.
#: Why a request failed that the browser gave up itself, since its page was left.
LEFT: Final = "net::ERR_ABORTED"
PAGES: Final = {
    "groups": "/",
    "group": f"/group?group={GROUP}",
    "dlq": "/dlq",
    "counts": f"/dlq/topic?topic={DLQ}",
    "letters": f"/dlq/letters?topic={DLQ}",
    "letter": f"/dlq/letter?topic={DLQ}&partition=0&offset=0",
    "explain": f"/explain?group={GROUP}&topic={TOPIC}&partition=0&offset={CONSUMED}",
    "topics": "/topics",
    "topic": f"/topic?topic={TOPIC}",
    "records": f"/records?topic={TOPIC}",
    "record": f"/record?topic={TOPIC}&offset=1",
    "configs": f"/configs?group={GROUP}&name=share.record.lock.duration.ms",
    "reset": f"/reset?group={GROUP}",
    "memory": "/memory",
    "nodes": "/nodes",
    "sign-in": "/sign-in",
    "refused": "/group?group=nope",
}
#: What docs/howto/console.md shows.
PICTURES: Final = {
    ("groups", "light", DESKTOP): "console-groups-light.png",
    ("group", "dark", DESKTOP): "console-group-dark.png",
    ("counts", "light", DESKTOP): "console-letters-light.png",
    ("memory", "light", DESKTOP): "console-memory-light.png",
}
#: Roles of what a user acts on, which need a name.
ACTED_ON: Final = {"link", "button", "textbox", "checkbox", "radio", "combobox", "searchbox", "spinbutton", "image"}
COLOURS: Final = """() => {
  const found = [];
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(colour) && colour !== "transparent") return colour;
    }
    return getComputedStyle(document.documentElement).colorScheme.includes("dark")
      && matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(0, 0, 0)" : "rgb(255, 255, 255)";
  };
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    const box = element.getBoundingClientRect();
    if (!text || !box.width || element.closest("svg")) continue;
    const style = getComputedStyle(element);
    found.push([style.color, ground(element), element.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""
LEVELS: Final = "() => [...document.querySelectorAll('h1, h2, h3')].map((each) => each.tagName[1])"
#: What the keyboard reaches has an outline when it does.
OUTLINE: Final = """() => {
  const style = getComputedStyle(document.activeElement);
  return [document.activeElement.tagName, style.outlineStyle, parseFloat(style.outlineWidth)];
}"""


@dataclass(frozen=True, slots=True)
class World:
    """A cluster, a console of it, and a browser."""

    bootstrap: str
    origin: str
    browser: Browser

    def page(self, *, dark: bool = False, size: tuple[int, int] = DESKTOP, script: bool = True) -> Page:
        """Open a window."""
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            base_url=self.origin,
        )
        return context.new_page()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A group that has rejected records, a member that holds some, and a window."""
    path = chromium()
    if path is None:
        pytest.skip("needs chromium: the console is used in a headless browser")
    with Cluster(QUICK | {"group.share.max.record.lock.duration.ms": "3600000"}) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap}
        fill(settings, **{"share.record.lock.duration.ms": "3600000"})
        while letters(settings) < CONSUMED // 3:
            pass
        leave_behind(settings, "audit")
        console = RunningConsole(cluster.bootstrap, tmp_path_factory.mktemp("console"))
        try:
            with consumer(settings, records=7) as mail, sync_playwright() as driver:
                held = 0
                while not held:
                    held = len(mail.poll(timeout=1))
                browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
                yield World(cluster.bootstrap, console.origin, browser)
                browser.close()
        finally:
            console.close()


@pytest.mark.rule("CT-161")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_is_quiet_fits_and_can_be_read_and_heard(world: World, scheme: str, size: tuple[int, int]) -> None:
    page = world.page(dark=scheme == "dark", size=size)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url) if request.failure != LEFT else None)
    for name, path in PAGES.items():
        page.goto(path, wait_until="load")
        if name == "counts":
            expect(page.get_by_text("Counted to the end")).to_be_visible()
        wide, window = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window, name
        assert faint(page) == [], name
        assert unheard(page) == [], name
        if picture := PICTURES.get((name, scheme, size)):
            _keep(page, picture)
    assert [text for text in said if "404" not in text] == []
    page.context.close()


def faint(page: Page) -> list[Any]:
    """Return the texts whose contrast is too low to be read."""
    return [
        (ink, paper, text) for ink, paper, text in page.evaluate(COLOURS) if contrast(ink, paper) < 4.5
    ]  # fmt: skip


def unheard(page: Page) -> list[str]:
    """Return what a screen reader could not say, from the browser's tree of roles and names."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in tree if not node.get("ignored")]
    roles = [node["role"]["value"] for node in shown if "role" in node]
    found = [f"no {role}" for role in ("main", "banner", "navigation") if role not in roles]
    found += ["not one heading of level 1"] if page.locator("h1").count() != 1 else []
    for node in shown:
        role, name = node.get("role", {}).get("value"), node.get("name", {}).get("value", "")
        if role in ACTED_ON and not name.strip():
            found.append(f"{role} without a name: {node.get('properties')}")
    levels = [int(level) for level in page.evaluate(LEVELS)]
    found += ["a level of headings is left out"] if any(b > a + 1 for a, b in pairwise(levels)) else []
    found += [] if page.evaluate("() => [...document.querySelectorAll('thead th')].every(e => e.scope)") else ["th"]
    return found


def _keep(page: Page, name: str) -> None:
    picture = page.screenshot()
    assert len(picture) <= BYTES_MAX
    if os.environ.get("SHAREGROUPS_WRITE_PICTURES"):
        (IMAGES / name).write_bytes(picture)
    assert (IMAGES / name).exists(), f"SHAREGROUPS_WRITE_PICTURES=1 writes {name}"


@pytest.mark.rule("CT-161")
def test_the_keyboard_reaches_everything_and_shows_where_it_is(world: World) -> None:
    page = world.page()
    page.goto(PAGES["letters"])
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the page")
    stops = page.locator("a[href], button, input:not([type=hidden]), select, textarea, [tabindex='0']").count()
    assert stops > 20
    seen = 1
    for _ in range(stops - 1):
        page.keyboard.press("Tab")
        tag, style, width = page.evaluate(OUTLINE)
        assert tag != "BODY", seen
        assert style != "none", (seen, tag)
        assert width >= 2, (seen, tag)
        seen += 1
    assert seen == stops
    page.get_by_label("Choose letter 0:1").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Redrive the chosen: dry run").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Redrive 1 chosen letter of {DLQ}: dry run")
    expect(page.get_by_role("button", name="Redrive them")).to_be_visible()
    page.context.close()


@pytest.mark.rule("CT-161", "CT-168")
def test_an_open_page_changes_under_a_user_who_does_not_lose_their_place(world: World) -> None:
    page = world.page()
    page.goto(PAGES["group"])
    lag = page.locator("dl.facts dt", has_text="Lag").locator("xpath=following-sibling::dd[1]")
    before = int((lag.text_content() or "").replace(",", ""))
    expect(page.get_by_text("7 held by members")).to_be_visible()
    link = page.get_by_role("link", name=f"{TOPIC}-0")
    link.focus()
    produce(world, 5)
    expect(lag).to_have_text(f"{before + 5:,}", timeout=60_000)
    expect(link).to_be_focused()
    page.get_by_role("button", name="Pause updating").click()
    produce(world, 3)
    other = world.page()
    other.goto(PAGES["group"])
    later = other.locator("dl.facts dt", has_text="Lag").locator("xpath=following-sibling::dd[1]")
    expect(later).to_have_text(f"{before + 8:,}", timeout=60_000)
    expect(lag).to_have_text(f"{before + 5:,}")
    page.get_by_role("button", name="Go on updating").click()
    expect(lag).to_have_text(f"{before + 8:,}", timeout=60_000)
    page.context.close()
    other.context.close()


def produce(world: World, count: int) -> None:
    with Producer({"bootstrap.servers": world.bootstrap}) as producer:
        for _ in range(count):
            producer.produce(TOPIC, b"more")


@pytest.mark.rule("CT-161", "CT-166")
def test_letters_are_put_back_without_script(world: World) -> None:
    page = world.page(script=False, size=PHONE)
    page.goto("/")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name=f"Letters of group {GROUP}").click()
    while page.get_by_text("Counted to the end").count() == 0:
        page.reload()
    assert page.get_by_role("button", name="Pause updating").count() == 0
    page.get_by_role("link", name="Show 5 letters").first.click()
    page.get_by_role("button", name="Redrive: dry run").click()
    while page.get_by_role("button", name="Redrive them").count() == 0:
        page.reload()
    expect(page.get_by_role("columnheader", name="Would be redriven")).to_be_visible()
    page.get_by_role("button", name="Redrive them").click()
    while page.get_by_text("Done at").count() == 0:
        page.reload()
    expect(page.get_by_role("row", name=f"{GROUP} {TOPIC} 5 0 0 0")).to_be_visible()
    page.context.close()
