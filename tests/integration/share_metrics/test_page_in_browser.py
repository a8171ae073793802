"""The page in headless Chromium: nothing in the console, no sideways scrolling on a phone, readable in light and
dark."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

from share_metrics.report.model import PartitionLine, Point, Report
from share_metrics.report.page import render
from tools.screenshot import BYTES_MAX, headless, main
from tools.screenshot import chromium as browser

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
PNG: Final = b"\x89PNG\r\n\x1a\n"
BOUND_S: Final = 240
PHONE: Final = 390
DESKTOP: Final = 1280
#: Shows the page in a frame of a given width, and writes its measurements into this document.
FRAME: Final = """<!doctype html><meta charset="utf-8"><body><iframe id="frame" width="{width}" height="800"></iframe>
<pre id="found"></pre><script>
const page = new TextDecoder().decode(Uint8Array.from(atob("{page}"), c => c.charCodeAt(0)));
const frame = document.getElementById("frame");
frame.onload = () => {{
  const inside = frame.contentDocument, root = inside.documentElement;
  inside.querySelectorAll("details").forEach(one => one.open = true);
  const style = name => frame.contentWindow.getComputedStyle(inside.querySelector(name));
  document.getElementById("found").textContent = JSON.stringify({{
    wide: root.scrollWidth, client: root.clientWidth, ink: style("body").color, paper: style("body").backgroundColor,
    dim: style(".dim").color, charts: inside.querySelectorAll("svg").length,
    drawn: [...inside.querySelectorAll("svg")].filter(one => one.getBoundingClientRect().width > 100).length,
    scrolled: [...inside.querySelectorAll(".wide")].filter(one => one.scrollWidth > one.clientWidth)
      .map(one => one.firstElementChild.className),
    cut: [...inside.querySelectorAll("td, p, h1, h2, h3")].filter(one => one.clientWidth > 1 &&
      one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.slice(0, 40)),
    seen: [2, 3].map(number => inside.querySelector(`.groups td:nth-child(${{number}})`).getBoundingClientRect().right),
    name: frame.contentWindow.getComputedStyle(inside.querySelector(".groups td:nth-child(2)"), "::before").content,
    signs: style(".wide").backgroundAttachment, hatched: style("rect.outage").fill,
    dashes: style("polyline.least").strokeDasharray,
  }});
}};
frame.srcdoc = page;
</script></body>"""


def page() -> str:
    """A page with every element, and names as long as Kafka allows."""
    points = tuple(Point(36_000 + 60 * at, at % 17, None if at == 7 else at * 2, at > 50) for at in range(60))
    lines = [
        PartitionLine(f"{'g' * 200} · {'orders' * 30}-{number}", 10**12, 10**9, 10**9, 38, 2, 1, 5, 6, 3, 0.075, 0, 0,
                      points, 12.5)
        for number in range(25)
    ]  # fmt: skip
    name = lines[0].name
    return render(
        Report(
            "2026-11-22 10:00", "2026-11-22 11:00", 60, lines,
            poison=[{"offset": 10**12, "name": name, "state": "Archived", "reason": "delivery limit",
                     "delivery_count": 4, "first_seen": "2026-11-22 10:00:09", "last_seen": "2026-11-22 10:59:09",
                     "times_released": 4}],
            stalls=[{"name": name, "window": "2026-11-22 10:59:00", "lag": 10**9, "still_s": 300, "kind": "stalled"}],
            episodes=[{"name": name, "kind": "stalled", "since": "2026-11-22 10:04:00", "until": "2026-11-22 11:00:00",
                       "lag": 10**9}],
            groups=[{"group_id": "g" * 200, "state": "Stable", "members": 3, "joins": 4, "leaves": 1, "rebalances": 2,
                     "epoch_bumps": 2, "flapping": 0}],
            standing=[{"group_id": "g" * 200, "state": "Stable", "members": 3}],
            members=[{"group_id": "g" * 200, "client_id": "c" * 200, "client_host": "h" * 60, "member_id": "m" * 36,
                      "member_epoch": 7, "has": "; ".join(f"{'orders' * 30}: {one}" for one in range(20))}],
            skew=[{"stream": "{sgs:0}:log", "entries": 10**9, "bytes": 10**12, "keys": 9, "skew": 1.5, "gini": 0.3}],
            cluster="shop", outages=[(36_000 + 600, 36_000 + 900)], configured=["g" * 200],
            unread=[{"topic": "t" * 200, "records": 10**9, "oldest_s": 0}],
            letters=[{"topic": "t" * 200, "records": 10**9}],
            reasons=[{"kind": "k" * 60, "group_id": "g" * 200, "topic": "t" * 200, "records": 10**9,
                      "example": "x" * 200}],
            gaps=[{"stream": "s" * 80, "from_id": "1-0", "to_id": "1-9", "lost": 4, "reason": "trimmed"}],
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> str:
    found = browser()
    if found is None:
        pytest.skip("needs chromium: the page is looked at in a headless browser")
    return found


def inspected(chromium: str, folder: Path, width: int, dark: bool) -> tuple[dict[str, Any], str]:
    """Return the page's measurements in a frame of `width`, and the console's lines."""
    shown = base64.b64encode(page().encode()).decode()
    (folder / "frame.html").write_text(FRAME.format(width=width, page=shown), encoding="utf-8")
    command = [*headless(chromium, folder / "profile", dark=dark), "--enable-logging=stderr", "--timeout=60000"]
    done = subprocess.run(
        [*command, "--dump-dom", (folder / "frame.html").as_uri()],
        capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    match = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
    assert match is not None, done.stdout[-500:] + done.stderr[-1000:]
    return json.loads(unescape(match[1])), "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(r, g, b)`, as defined by WCAG."""
    parts = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_page_is_quiet_fits_and_can_be_read(chromium: str, tmp_path: Path, width: int, dark: bool) -> None:
    found, console = inspected(chromium, tmp_path, width, dark)
    assert console == ""
    assert found["wide"] <= found["client"]
    assert found["drawn"] == found["charts"] - 1 > 40, "all but the pattern of outages"
    assert (luminance(found["paper"]) < 0.1) is dark
    assert contrast(found["ink"], found["paper"]) >= 7
    assert contrast(found["dim"], found["paper"]) >= 4.5
    assert found["hatched"] == 'url("#hatch")'
    assert found["dashes"] == "5px, 3px"


@pytest.mark.rule("PM-103")
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_lag_and_time_to_drain_are_seen_without_scrolling_and_no_value_is_cut(
    chromium: str, tmp_path: Path, width: int
) -> None:
    """Between these widths a table may scroll, and then has a shadow on the side where it goes on."""
    found, _ = inspected(chromium, tmp_path, width, dark=False)
    assert max(found["seen"]) <= width
    assert found["cut"] == []
    assert found["scrolled"] == []
    assert found["name"] == ('"lag"' if width == PHONE else "none")
    assert found["signs"] == "local, local, scroll, scroll"


@pytest.mark.rule("PM-37")
def test_pictures_for_the_docs_are_taken_in_light_and_dark(
    chromium: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--page", str(tmp_path / "report.html"), "--out", str(tmp_path / "images")]
    assert main(command) == 1
    assert "run `make demo` and `make report` first" in capsys.readouterr().err
    (tmp_path / "report.html").write_text(page(), encoding="utf-8")
    assert main(command) == 0
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert sorted(pictures) == ["report-dark.png", "report-light.png"]
    assert all(picture.startswith(PNG) for picture in pictures.values())
    assert len(set(pictures.values())) == 2


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_docs_show_a_page(scheme: str) -> None:
    picture = f"images/report-{scheme}.png"
    assert picture in (DOCS / "pipeline.md").read_text(encoding="utf-8")
    kept = (DOCS / picture).read_bytes()
    assert kept.startswith(PNG)
    assert len(kept) < BYTES_MAX
