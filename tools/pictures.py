"""Draws pictures of the pipeline's page for the docs from fixed rows: a whole page, and some of its charts.

`python -m tools.pictures --write` writes them to docs/images; with `--check` the exit status says whether they are up
to date. `make screenshot` takes screenshots of the page in a browser.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import sin
from pathlib import Path
from typing import Final

from share_metrics.report import Report, render
from share_metrics.report.model import Before, Ends, Event, Mark, Pace, PartitionLine, Point
from share_metrics.report.page import charts, mix

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
_BEGIN_S: Final = int(datetime(2026, 11, 22, 8, tzinfo=UTC).timestamp())
_MINUTES: Final = 60
#: The part of the page's style that a separate chart needs.
_STYLE: Final = (
    "<style>:root{--dim:#5c6670;--line:#d8dee4;--mark:#1f6feb}"
    "@media(prefers-color-scheme:dark){:root{--dim:#9aa4ae;--line:#333b43;--mark:#6ea8fe}}"
    "text{font:10px system-ui,sans-serif;fill:var(--dim)}.axis{stroke:var(--line)}"
    "polyline{fill:none;stroke:var(--mark);stroke-width:1.5;stroke-linejoin:round}.area{fill:var(--mark);opacity:.14}"
    ".m0,.m1,.m2{stroke-width:1.5;stroke-dasharray:3 2}.m0{stroke:#8250df}.m1{stroke:#cf222e}.m2{stroke:#9a6700}"
    ".k0{fill:#2da44e}.k1{fill:#1f6feb}.k2{fill:#cf222e}.k3{fill:#d4a72c}.k4{fill:#8250df}</style>"
)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pictures. Returns 0 if they are right, 1 if not, 2 for wrong usage."""
    words = sys.argv[1:] if arguments is None else arguments
    if words not in (["--write"], ["--check"]):
        print("Say --write or --check.", file=sys.stderr)
        return 2
    wrong = [name for name, text in pictures().items() if not _same(FOLDER / name, text)]
    if words == ["--write"]:
        for name in wrong:
            (FOLDER / name).write_text(pictures()[name], encoding="utf-8")
        return 0
    for name in wrong:
        print(f"docs/images/{name} is not what this build draws; `make docs` rewrites it.", file=sys.stderr)
    return 1 if wrong else 0


def pictures() -> dict[str, str]:
    """Return files by name: the page, and charts of a group at a take-over: its backlog, and its records' outcomes."""
    report = example()
    (marked,) = (line for line in report.partitions if line.marks)
    lag, finished = _drawn(charts(marked, report.window_s))
    (acknowledgements, *_) = _drawn(mix([marked]))
    return {
        "page.html": render(report),
        "page-lag.svg": lag,
        "page-finished.svg": finished,
        "page-acknowledgements.svg": acknowledgements,
    }


def example() -> Report:
    """Return an hour of three groups: one that gets a backlog when its leader dies and then catches up, one that has
    been stalled for a quarter of an hour, and one with nothing left to do."""
    mails = _line("mail · mails-0", _take_over, released=420, rejected=12, timed_out=31, redelivered=380)
    bills = replace(
        _line("billing · orders-1", _stalled, released=15, rejected=0, timed_out=4, redelivered=11),
        still_s=900.0, lag_s=912.4,
    )  # fmt: skip
    audit = _line("audit · orders-1", lambda _minute: (0, 200))
    stalled = {"name": bills.name, "kind": "stalled", "lag": bills.lag}
    return Report(
        "2026-11-22 08:00", "2026-11-22 09:00", 60,
        sorted((mails, bills, audit), key=lambda line: -(line.lag or 0)),
        poison=[
            {"offset": 8_812 + 97 * number, "name": mails.name, "state": "Archived", "reason": "rejected",
             "delivery_count": 1, "first_seen": f"2026-11-22 08:{50 - number}:12",
             "last_seen": f"2026-11-22 08:{50 - number}:12", "times_released": 0}
            for number in range(3)
        ],
        reasons=[{"kind": kind, "group_id": "mail", "topic": "mails", "records": count, "example": f"{kind}: {text}"}
                 for kind, count, text in (("ConnectionRefusedError", 405, "[Errno 111] smtp.example.org:25"),
                                           ("UnicodeEncodeError", 12, "'ascii' codec can't encode character"))],
        stalls=[{**stalled, "window": "2026-11-22 08:59:00", "still_s": 900}],
        episodes=[{**stalled, "since": "2026-11-22 08:44:00", "until": "2026-11-22 09:00:00"}],
        standing=[{"group_id": group, "state": state, "members": count}
                  for group, state, count in (("mail", "Stable", 4), ("billing", "Stable", 1), ("audit", "Empty", 0))],
        members=[{"group_id": "mail", "client_id": f"mailer-{number}", "client_host": f"10.0.0.{number}",
                  "member_id": f"8c1f{number}", "member_epoch": 7, "has": "mails: 0"} for number in range(1, 5)]
        + [{"group_id": "billing", "client_id": "biller", "client_host": "10.0.0.9", "member_id": "5e2a1",
            "member_epoch": 3, "has": "orders: 1"}],
        before=Before(3_600, 40, 0, 151_200, 150_700, 310, 9, 12, 0, 290),
        cluster="shop",
        unread=[{"topic": "returns", "records": 1_500, "oldest_s": _BEGIN_S + 60 * 9 + 14}],
        configured=["reports"],
        outages=[(_BEGIN_S + 60 * 9 + 28, _BEGIN_S + 60 * 13 + 5)],
        store={"used_bytes": 431_700_000, "limit_bytes": 1 << 30},
        letters=[{"topic": "mails-dlq", "records": 12}],
        ends=[Ends("audit", 12_000, 0, (16, 23), (53, 76), (90, 128)),
              Ends("billing", bills.finished, 0, (215, 362), (724, 1_218), (2_048, 2_897)),
              Ends("mail", mails.finished, 0, (45, 64), (181_019, 215_270), (215_269, 256_000))],
        read_s=3_600,
    )  # fmt: skip


def _take_over(minute: int) -> tuple[int, int]:
    lag = 40 + round(20 * sin(minute)) + max(0, min((minute - 24) * 1_500, 9_000 - (minute - 30) * 600))
    return lag, 0 if 25 <= minute < 31 else 2_000 + 600 * (31 <= minute < 46) + round(150 * sin(minute * 1.7))


def _stalled(minute: int) -> tuple[int, int]:
    return (30 + minute % 7, 210 + minute % 9) if minute < 45 else ((minute - 44) * 180, 0)


def _line(name: str, at: Callable[[int], tuple[int, int]], **counts: int) -> PartitionLine:
    series = [at(minute) for minute in range(_MINUTES)]
    finished = sum(done for _, done in series)
    points = tuple(Point(_BEGIN_S + 60 * minute, *values) for minute, values in enumerate(series))
    rejected, redelivered = counts.get("rejected", 0), counts.get("redelivered", 0)
    marks = (Mark(_BEGIN_S + 60 * 30, Event.LEADER), Mark(_BEGIN_S + 60 * 31 + 4, Event.OWNER))
    return PartitionLine(
        name, 800_000 + finished, series[-1][0], finished, finished - rejected, counts.get("released", 0), rejected,
        counts.get("timed_out", 0), 0, redelivered, redelivered / finished, 0, 0, points, delayed=0,
        group_id=name.split(" ", maxsplit=1)[0], pace=Pace(finished + series[-1][0] - series[0][0], finished, 3_540.0),
        marks=marks if counts.get("rejected") else (),
    )  # fmt: skip


def _drawn(html: str) -> list[str]:
    """Return the drawings in a piece of the page, each as a separate file."""
    begun = (part.partition("</svg>")[0] for part in html.split("<svg ")[1:])
    return [f'<svg xmlns="http://www.w3.org/2000/svg" {one.replace(">", ">" + _STYLE, 1)}</svg>\n' for one in begun]


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
