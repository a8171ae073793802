"""The page and its charts, made from plain values."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from share_metrics.report.model import Counts, Pace, PartitionLine, Point, Report, totals
from share_metrics.report.page import render


def line(name: str, lag: int | None = 5, points: int = 60, anomalies: int = 0) -> PartitionLine:
    series = tuple(Point(36_000 + 60 * at, at, None if at == 7 else at * 2) for at in range(points))
    return PartitionLine(name, 100, lag, 40, 38, 2, None, 0, 0, 3, 0.075, 0, anomalies, series)


def report(**fields: object) -> Report:
    given: dict[str, object] = {"partitions": [line("g · orders-0")], **fields}
    return Report("2026-11-22 10:00", "2026-11-22 11:00", 60, **given)  # type: ignore[arg-type] # as given


class Balance(HTMLParser):
    """Raises AssertionError if a tag is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.rule("PM-37", "PM-68")
def test_the_page_stands_alone_and_is_the_same_every_time() -> None:
    page = render(report())
    assert page == render(report())
    assert "http" not in page
    assert "<script" not in page
    assert "prefers-color-scheme:dark" in page
    assert 'name="viewport"' in page
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


@pytest.mark.rule("PM-37")
def test_fifty_share_partitions_fit_and_most_are_folded() -> None:
    page = render(report(partitions=[line(f"g · orders-{number}", points=1440) for number in range(50)]))
    assert len(page.encode()) < 2_000_000
    assert "30 more share-partitions" in page
    assert page.count("<svg") == 3 * 20


@pytest.mark.rule("PM-37")
def test_ten_thousand_share_partitions_fit_too() -> None:
    """Each table has at most 200 rows; the sums and the light include all of them."""
    one = still(60)
    lines = [replace(one, name=f"g{at % 999} · orders-{at}", group_id=f"g{at % 999}") for at in range(10_000)]
    page = render(report(partitions=lines))
    assert len(page.encode()) < 2_000_000
    assert "9,980 more share-partitions" in page
    assert "200 of 9,980 are shown." in page
    assert "200 of 10,000 are shown." in page
    assert "10,000 share-partitions stand still, the longest for 1 min" in page
    assert "<title>Share groups: g0, g1, g2 and 996 more</title>" in page


@pytest.mark.rule("PM-37", "PM-100")
def test_the_page_has_its_sections_and_says_what_is_a_lower_bound() -> None:
    page = render(report(poison=[POISON], stalls=[STALL], groups=[GROUP], skew=[SKEW], quality=[QUALITY], gaps=[GAP]))
    assert re.findall(r"<h2>([^<]+)</h2>", page) == [
        "What stands still", "Groups", "Why records were given up", "Members", "Beside the time before",
        "From append to end", "Share-partitions", "Lag and progress", "Acknowledgements", "Standstills", "Rebalances",
        "Streams and store", "Data quality",
    ]  # fmt: skip
    assert page.index('class="light red"') < page.index("<h2>")
    heads = re.findall(r"<th>([^<]+)</th>", page)
    redelivered = [head for head in heads if "redelivered" in head or "of finished" in head]
    assert [head[-1] for head in redelivered] == ["≥"] * 3
    assert "“≥” and dashed lines mark lower bounds." in page
    assert "at least 3 finished after redelivery" in page


@pytest.mark.rule("PM-90")
@pytest.mark.parametrize(
    ("lag", "pace", "shown"),
    [(0, None, "nothing left"), (5, None, "–"), (5, Pace(1, 1, 60.0), "never, at this pace"),
     (5, Pace(0, 60, 60.0), "5 s"), (1, Pace(0, 600, 60.0), "100 ms"), (150, Pace(0, 60, 60.0), "2 min 30 s"),
     (7_290, Pace(0, 60, 60.0), "2 h 1 min"), (10**6, Pace(60, 120, 60.0), "11 d 13 h")],
)  # fmt: skip
def test_a_group_shows_how_long_its_lag_takes(lag: int, pace: Pace | None, shown: str) -> None:
    page = render(report(partitions=[replace(line("g · orders-0", lag), group_id="g", pace=pace)]))
    (row,) = re.findall(r"<tr><td>g</td>(.*?)</tr>", page)
    assert re.findall(r"<td>([^<]*)</td>", row)[1] == shown


@pytest.mark.rule("PM-90")
def test_two_hundred_groups_have_a_line_and_the_rest_is_reported() -> None:
    page = render(report(partitions=[replace(line("x", 5), group_id=f"group-{number}") for number in range(203)]))
    assert page.count("<td>group-") == 200
    assert "200 of 203 are shown." in page


@pytest.mark.rule("PM-90")
def test_a_lag_that_is_not_known_is_never_0() -> None:
    page = render(report(partitions=[replace(line("g · orders-0", None), group_id="g")]))
    assert "<tr><td>g</td><td>unknown</td><td>–</td><td>–</td><td>–</td><td>1</td>" in page


@pytest.mark.rule("PM-90")
def test_a_standstill_is_one_line_and_its_windows_are_folded() -> None:
    page = render(report(stalls=[STALL], episodes=[EPISODE]))
    line_of_it = (
        "<td>g · t-0</td><td>1,200</td><td>stalled</td><td>2026-11-22 10:01:00</td><td>2026-11-22 10:09:00</td>"
    )
    assert page.index(line_of_it) < page.index("<summary>Window by window</summary>")
    assert "Window by window" not in render(report())


@pytest.mark.rule("PM-90")
def test_more_members_than_there_is_room_for_are_reported() -> None:
    member = {
        "group_id": "g",
        "client_id": "<c>",
        "client_host": "h",
        "member_id": "m",
        "member_epoch": 3,
        "has": "t: 0",
    }
    page = render(report(members=[member], standing=[{"group_id": "g", "state": "Stable", "members": 201}]))
    assert "<td>g</td><td>&lt;c&gt;</td><td>h</td><td>m</td><td>3</td><td>t: 0</td>" in page
    assert "1 of 201 are shown." in page


@pytest.mark.rule("PM-37")
def test_names_are_text_whatever_they_hold() -> None:
    page = render(report(partitions=[line("<script>alert(1)</script> & co · t-0")]))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.rule("PM-37")
def test_an_empty_report_is_a_page_too() -> None:
    page = render(report(partitions=[]))
    assert "<b>0</b> share-partitions" in page
    assert "<title>Share groups</title>" in page
    assert "None." in page


POISON = {
    "offset": 9, "name": "g · t-0", "state": "Available", "reason": "one delivery left", "delivery_count": 4,
    "first_seen": "2026-11-22 10:00:00", "last_seen": "2026-11-22 10:01:00", "times_released": 1,
}  # fmt: skip
GROUP = {
    "group_id": "g", "state": "Stable", "members": 1, "joins": 1, "leaves": 0, "rebalances": 1, "epoch_bumps": 1,
    "flapping": 0,
}  # fmt: skip
SKEW = {"stream": "s", "entries": 9, "bytes": 90, "keys": 1, "skew": 1.0, "gini": 0.0}
GAP = {"stream": "s", "from_id": "1-0", "to_id": "1-5", "lost": 4, "reason": "trimmed"}
EPISODE = {
    "name": "g · t-0", "kind": "stalled", "since": "2026-11-22 10:00:00", "until": "2026-11-22 10:09:00", "lag": 1_200,
}  # fmt: skip
STALL = {"name": "g · t-0", "window": "2026-11-22 10:08:00", "lag": 5, "still_s": 300, "kind": "stalled"}
QUALITY = {
    "stream": "s", "entries": 9, "claims": 1, "noops": 0, "quarantined": 0, "unknown": 0, "gaps": 0, "lost": 0,
}  # fmt: skip


def still(seconds: float, name: str = "g · t-0") -> PartitionLine:
    return replace(line(name), still_s=seconds)


END_S = 1_795_345_200


@pytest.mark.rule("PM-37", "PM-64", "PM-101")
@pytest.mark.parametrize(
    ("fields", "light", "why"),
    [
        ({"quality": [QUALITY]}, "green", "Nothing stands still, nothing was lost, nothing odd was found."),
        ({"gaps": [GAP]}, "red", f"{GAP['lost']} entries lost."),
        ({"partitions": [still(60)]}, "amber", "1 share-partition stands still, for 1 min."),
        ({"partitions": [still(899)]}, "amber", "1 share-partition stands still, for 14 min 59 s."),
        (
            {"partitions": [still(60), still(900, "g · t-1")]},
            "red",
            "2 share-partitions stand still, the longest for 15 min.",
        ),
        ({"stalls": [STALL]}, "amber", "1 share-partition stood still earlier."),
        ({"incomplete": 1}, "amber", "1 window without a state to begin with."),
        ({"quality": [QUALITY | {"quarantined": 1}]}, "amber", "1 entry is no record."),
        ({"quality": [QUALITY | {"unknown": 2}]}, "amber", "2 entries of unknown types."),
        ({"partitions": [line("g · t-0", anomalies=1)]}, "amber", "1 write does not fit those before."),
        ({"behind_s": 299}, "green", "Nothing stands still"),
        ({"behind_s": 300}, "amber", "5 min not read yet."),
        ({"behind_s": 900}, "red", "15 min not read yet."),
        ({"behind_s": 300, "incomplete": 2}, "amber", "5 min not read yet; 2 windows without a state to begin with."),
        ({"outages": [(END_S - 3_600, END_S - 3_301)]}, "green", "Nothing stands still"),
        ({"outages": [(END_S - 9_999, END_S - 3_300)]}, "amber", "Nothing was ingested for 5 min."),
        ({"outages": [(END_S - 200, END_S + 9_999)]}, "green", "Nothing stands still"),
        ({"unread": [{"topic": "t", "records": 3, "oldest_s": END_S - 299}]}, "green", "Nothing stands still"),
        (
            {"unread": [{"topic": "t", "records": 3, "oldest_s": END_S - 86_400}]},
            "amber",
            "1 topic with records that no group reads.",
        ),
        ({"unread": [{"topic": "t", "records": 3, "oldest_s": None}]}, "amber", "1 topic with records"),
        ({"store": {"used_bytes": 79, "limit_bytes": 100}}, "green", "Nothing stands still"),
        ({"store": {"used_bytes": 80, "limit_bytes": 100}}, "amber", "The store is 80% full."),
        ({"store": {"used_bytes": 95, "limit_bytes": 100}}, "red", "The store is 95% full."),
        ({"store": {"used_bytes": 95, "limit_bytes": None}}, "green", "Nothing stands still"),
        ({"configured": ["g"], "letters": [{"topic": "t", "records": 3}]}, "green", "Nothing stands still"),
    ],
)
def test_the_light_says_how_things_are_and_why(fields: dict[str, object], light: str, why: str) -> None:
    made = report(**fields)
    assert made.light == light
    assert f'<p><span class="light {light}">{light}</span> {why}' in render(made)


@pytest.mark.rule("PM-37", "PM-64")
def test_what_was_counted_is_reported_however_few_rows_are_shown() -> None:
    counts = Counts(lost=300, stalls=2_311, stalled=1, standing=211, poison=7, quarantined=2, unknown=3)
    shown = [STALL | {"kind": "abandoned"}]
    made = report(partitions=[still(300)], gaps=[GAP], stalls=shown, quality=[QUALITY], counts=counts)
    assert made.light == "red"
    named = {name: totals(made)[name] for name in ("lost", "stalls", "poison", "quarantined", "unknown")}
    assert named == {"lost": 300, "stalls": 2_311, "poison": 7, "quarantined": 2, "unknown": 3}
    page = render(made)
    assert "1 share-partition stands still, for 5 min; 210 share-partitions stood still earlier" in page
    assert "<b>1</b> standing still" in page
    assert "<b>300</b> entries lost" in page
    assert "1 of 2,311 are shown." in page
    assert "are shown" not in render(report(stalls=shown))


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize(
    ("behind_s", "words"), [(299, None), (300, "the last 5 min"), (3_599, "the last 59 min has"), (7_860, "2 h 11 min")]
)
def test_a_page_says_that_its_ingest_is_far_behind(behind_s: int, words: str | None) -> None:
    page = render(report(behind_s=behind_s))
    assert ("has been read yet" in page) == (words is not None)
    assert words is None or words in page


@pytest.mark.rule("PM-37", "PM-42")
def test_a_lag_that_is_not_known_is_no_lag_of_0() -> None:
    """A lag that is only a lower bound is shown as one; a deleted share-partition has no lag."""
    unknown, least, gone = line("g · t-1", None), line("g · t-2", 1_200), line("g · t-3", None)
    made = report(partitions=[line("g · t-0", 0), unknown, replace(least, lag_least=True), replace(gone, gone=True)])
    page = render(made)
    cells = re.findall(r"<tr><td>(g · t-\d)</td><td>([^<]+)</td>(?:<td>[^<]+</td>){9}</tr>", page)
    assert [shown for _, shown in cells] == ["0", "unknown", "≥\N{NO-BREAK SPACE}1,200", "–"]
    assert "<b>The lag of 2 share-partitions is unknown or only a lower bound: records may wait there.</b>" in page
    assert (made.light, totals(made)["lag"], totals(made)["lag_unknown"]) == ("amber", 1_200, 2)
    known = report(partitions=[line("g · t-0", 0), replace(gone, gone=True)])
    assert (known.light, totals(known)["lag_unknown"], "The lag of" in render(known)) == ("green", 0, False)


@pytest.mark.rule("PM-37", "PM-64")
def test_totals_count_what_is_no_record() -> None:
    found = totals(report(quality=[{"quarantined": 2, "unknown": 1}, {"quarantined": 3, "unknown": 0}]))
    assert (found["quarantined"], found["unknown"]) == (5, 1)


@pytest.mark.rule("PM-37", "PM-44")
def test_totals_are_sums_over_all_share_partitions() -> None:
    found = totals(report(partitions=[line("g · t-0"), line("g · t-1", lag=None)], gaps=[GAP]))
    assert found == {
        "share_partitions": 2, "finished": 80, "accepted": 76, "released": 4, "given_back": 0, "rejected": 0,
        "timed_out": 0, "limited": 0, "redelivered_lb": 6, "lag": 5, "poison": 0, "stalls": 0, "lost": 4,
        "quarantined": 0, "unknown": 0, "lag_unknown": 1, "behind_s": 0,
    }  # fmt: skip


@pytest.mark.rule("PM-37")
def test_the_numbers_that_matter_most_stand_first_and_large() -> None:
    page = render(report(partitions=[line("g · t-0"), replace(still(60), lag=1_995)], gaps=[GAP]))
    tiles = re.findall(r"<div><b>([\d,]+)</b> ([^<]+)</div>", page)
    assert tiles == [
        ("80", "records finished"), ("2,000", "records of lag"), ("2", "share-partitions"), ("1", "standing still"),
        ("0", "failed or poison"), ("4", "entries lost"),
    ]  # fmt: skip
    assert "<td>7.5\N{NO-BREAK SPACE}%</td>" in page


def why(kind: str | None, example: str | None, records: int = 3, group: str | None = "g") -> dict[str, object]:
    return {"kind": kind, "group_id": group, "topic": group and "orders", "records": records, "example": example}


@pytest.mark.rule("PM-94")
def test_the_page_says_why_records_were_given_up() -> None:
    page = render(report(reasons=[why("LookupError", "LookupError: no price"), why(None, None, 1_234, None)]))
    assert "<td>LookupError</td><td>3</td><td>g</td><td>orders</td><td>LookupError: no price</td>" in page
    assert "<td>all others</td><td>1,234</td><td>–</td><td>–</td><td>–</td>" in page


@pytest.mark.rule("PM-94")
def test_no_reason_breaks_the_page_or_turns_its_text_around() -> None:
    evil = "</td><script>alert(1)</script>\x1b[31m\u202etxt\u2066\u2028 \x00 & \"'" + "\u05d0" * 400
    page = render(report(reasons=[why(evil[:60], evil)]))
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert "<script" not in page
    assert not {"\x1b", "\x00", "\u202e", "\u2066", "\u2028"} & set(page)
    assert "\\x1b[31m\\u202etxt" in page


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("cluster", "names", "title"),
    [("", ["g"], "Share groups: g"), ("shop", ["a", "b", "c", "d", "e"], "Share groups of shop: a, b, c and 2 more"),
     ("<b>\x1b", ["</title><script>"], "Share groups of &lt;b&gt;\\x1b: &lt;/title&gt;&lt;script&gt;")],
)  # fmt: skip
def test_the_title_names_the_cluster_and_its_first_groups(cluster: str, names: list[str], title: str) -> None:
    page = render(report(cluster=cluster, partitions=[replace(line(f"{name} · t-0"), group_id=name) for name in names]))
    assert f"<title>{title}</title>" in page
    assert f"<h1>{title}</h1>" in page


@pytest.mark.rule("PM-37", "PM-100")
def test_failures_are_counted_by_how_they_ended_and_their_list_is_folded() -> None:
    rejected = POISON | {"reason": "rejected", "state": "Archived"}
    page = render(report(poison=[rejected, POISON, rejected]))
    summary = "<p>3 records failed, or have one delivery left: 2 rejected, 1 one delivery left.</p>"
    assert summary + "<details><summary>Record by record</summary>" in page
    counts = Counts(poison=500, poison_least=True)
    many = render(report(poison=[rejected], counts=counts))
    least = "≥\N{NO-BREAK SPACE}500"
    assert f"<p>{least} records failed, or have one delivery left. Of the 1 below: 1 rejected.</p>" in many
    assert f"<b>{least}</b> failed or poison" in many
    assert "1 of 500 are shown." in many


@pytest.mark.rule("PM-100")
def test_dead_letters_that_wait_and_the_store_are_on_the_page() -> None:
    store = {"used_bytes": 3 << 29, "limit_bytes": 1 << 31}
    page = render(report(letters=[{"topic": "t-dlq", "records": 1_200}, {"topic": "u", "records": 1}], store=store))
    assert "<td>t-dlq</td><td>1,200</td>" in page
    assert "<b>1,201</b> dead letters waiting" in page
    assert "<p>The store had 1.5 GiB of 2.0 GiB in use, 75%.</p>" in page
    assert "<b>75%</b> of the store in use" in page
    unlimited = render(report(store={"used_bytes": 812 << 20, "limit_bytes": None}))
    assert "<p>The store had 812 MiB in use; it has no limit.</p>" in unlimited
    assert "of the store in use" not in unlimited
    assert "store had" not in render(report())


@pytest.mark.rule("PM-100")
def test_skew_is_said_once_and_streams_are_folded() -> None:
    page = render(report(skew=[SKEW | {"stream": name, "skew": 1.5, "gini": 0.25} for name in "ab"], quality=[QUALITY]))
    assert page.count("Gini coefficient 0.25") == 1
    assert "Skew 1.50 (the largest stream by the mean)" in page
    assert "<summary>2 streams</summary>" in page
    assert page.index("<summary>Counts by stream</summary>") < page.rindex("<th>quarantined</th>")


@pytest.mark.rule("PM-100")
def test_records_that_sessions_gave_back_are_apart_from_the_released() -> None:
    page = render(report(partitions=[replace(line("g · t-0"), given_back=32)]))
    assert "38 accepted, 2 released, 0 rejected, 32 given back by sessions that ended, " in page
    assert "<tr><td>g · t-0</td><td>100</td><td>32</td><td>7.5\N{NO-BREAK SPACE}%</td>" in page
    assert "given back by" not in render(report())


@pytest.mark.rule("PM-102")
def test_one_share_partition_is_one_and_every_number_fits_its_noun() -> None:
    one = replace(line("g · t-0", 1), finished=1)
    page = render(report(partitions=[one], gaps=[GAP | {"lost": 1}], incomplete=1))
    for tile in ("<b>1</b> record finished", "<b>1</b> record of lag", "<b>1</b> share-partition<", "<b>1</b> entry"):
        assert tile in page
    assert "1 window of a share-partition is incomplete" in page
    many = render(report(partitions=[line(f"g · t-{number}", None) for number in range(21)]))
    assert "1 more share-partition<" in many


@pytest.mark.rule("PM-102")
def test_table_chart_label_and_tiles_say_the_same_lag() -> None:
    """The lag at the end is the line's, whatever the last window shows."""
    ended = replace(line("g · t-0", 1_446), lag_least=True, group_id="g")
    page, least = render(report(partitions=[ended])), "≥\N{NO-BREAK SPACE}1,446"
    assert f'aria-label="lag: {least} at the end, highest {least}"' in page
    assert f">lag, highest {least}</text>" in page
    assert f"<b>{least}</b> records of lag" in page
    assert f"<td>g · t-0</td><td>{least}</td>" in page
    assert f"<td>g</td><td>{least}</td>" in page
    unknown = render(report(partitions=[line("g · t-0", None)]))
    assert 'aria-label="lag: unknown at the end, 59 at most"' in unknown
    gone = render(report(partitions=[replace(line("g · t-0", None), gone=True)]))
    assert 'aria-label="lag: deleted at the end, 59 at most"' in gone


@pytest.mark.rule("PM-104")
def test_an_outage_of_the_ingest_is_hatched_and_said_in_words() -> None:
    span = (36_000 + 60 * 10, 36_000 + 60 * 20 + 27)
    page, words = render(report(outages=[span])), "from 1970-01-01 10:10:00 to 1970-01-01 10:20:27"
    assert f"<b>Nothing was ingested {words} (10 min 27 s).</b>" in page
    assert page.count('<pattern id="hatch"') == 1
    assert page.count(f'fill="url(#hatch)"><title>nothing was ingested {words}</title></rect>') == 2
    assert len(re.findall(f'aria-label="[^"]+, nothing was ingested {words}"', page)) == 2
    assert "Hatched: nothing was ingested." in page
    assert "hatch" not in render(report()).partition("</style>")[2]


@pytest.mark.rule("PM-37", "PM-102")
def test_no_name_anywhere_breaks_the_page() -> None:
    """Names of groups, topics, members, streams and the cluster are other people's."""
    evil = "</td></title><script>alert(1)</script>\x1b[31m\u202e\u2028\x00\"'&"
    row = dict.fromkeys(("name", "group_id", "client_id", "client_host", "member_id", "has", "topic", "stream"), evil)
    page = render(
        report(
            cluster=evil, partitions=[replace(still(300, evil), group_id=evil)], poison=[POISON | row],
            stalls=[STALL | row], episodes=[EPISODE | row], groups=[GROUP | row], skew=[SKEW | row],
            quality=[QUALITY | row], gaps=[GAP | row], members=[{"member_epoch": 3} | row],
            unread=[{"records": 3, "oldest_s": None} | row], configured=[evil], letters=[{"records": 3} | row],
            reasons=[why(evil, evil)], standing=[{"group_id": evil, "state": "Stable", "members": 1}],
        )
    )  # fmt: skip
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert "<script" not in page
    assert not {"\x1b", "\x00", "\u202e", "\u2028"} & set(page)
    assert page.count("\\x1b[31m") > 15
