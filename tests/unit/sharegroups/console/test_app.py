"""Who may open which page, what every response has, and what becomes of errors."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from kip932.errors import TopicAuthorizationFailedError
from sharegroups.admin import Admin
from sharegroups.console import topics
from sharegroups.console.app import BODY_MAX, CHANGES, PAGES, QUESTIONS
from sharegroups.console.guard import HEADERS
from tests.support.fake_cluster.cluster import FakeCluster

from .browser import ORIGIN, OwnConsole, text_of
from .conftest import DLQ, Open

OPEN = {
    "/": "", "/dlq": "", "/dlq/topic": f"?topic={DLQ}", "/dlq/letters": f"?topic={DLQ}",
    "/dlq/letter": f"?topic={DLQ}&partition=0&offset=0", "/group": "?group=g", "/explain": "", "/reset": "?group=g",
    "/topics": "", "/topic": "?topic=orders", "/records": "?topic=orders", "/record": "?topic=orders&offset=1",
    "/configs": "?topic=orders", "/memory": "", "/nodes": "",
}  # fmt: skip


@pytest.mark.rule("CT-161")
def test_every_response_has_the_policy_and_loads_nothing_from_outside(browser: OwnConsole) -> None:
    assert OPEN.keys() == PAGES.keys() - {"/task"}
    for path, query in OPEN.items():
        response = browser.client.get(path + query)
        assert response.status_code == 200, (path, text_of(response.text))
        assert {name: response.headers[name] for name in HEADERS} == dict(HEADERS)
        page = response.text
        assert re.findall(r'(?:src|href|action|formaction)="(?!/|#)[^"]*"', page) == []
        assert re.findall(r"<script(?! src=\"/static/)|<style|\son\w+=|\sstyle=|javascript:", page) == []
        assert page.count("<h1>") == 1
        assert '<html lang="en">' in page
    for path in ("/static/console.css", "/static/console.js", "/static/icon.svg", "/nope"):
        assert {name: browser.client.get(path).headers[name] for name in HEADERS} == dict(HEADERS)


@pytest.mark.rule("CT-161")
def test_the_script_is_short() -> None:
    folder = Path(topics.__file__).parent / "static"
    script = (folder / "console.js").read_text()
    assert [path.name for path in folder.glob("*.js")] == ["console.js"]
    assert script.count("\n") <= 300
    assert not re.search(r"https?:|import |eval\(|new Function", script)


@pytest.mark.rule("CT-161")
@pytest.mark.parametrize("name", ["<b>&\"'x", "a\x1b[2Jb", "a\u202eb", "שלום", "a\nb", "{{ 7 * 191 }}", "x" * 249])
def test_a_name_with_anything_in_it_is_shown_and_followed(browser: OwnConsole, fake: FakeCluster, name: str) -> None:
    fake.groups[name] = None
    page = browser.get("/")
    assert not any(each in page for each in ("<b>", "\x1b", "\u202e", "1337"))
    address = f"/group?group={quote(name).replace('%20', '+')}"
    assert address in page.replace("&#39;", "'") or quote(name, safe="") in page
    group = browser.get(f"/group?group={quote(name, safe='')}")
    assert text_of(group).count("State Empty") == 1
    assert not any(each in group for each in ("<b>", "\x1b", "\u202e"))
    reset = browser.get(f"/reset?group={quote(name, safe='')}")
    assert f'action="/reset/plan?group={quote(name, safe="").replace("%20", "+")}"' in reset


@pytest.mark.rule("CT-163")
def test_another_host_is_refused(browser: OwnConsole, opened: Open) -> None:
    response = browser.client.get("/", headers={"host": "evil.example:7980"})
    assert response.status_code == 421
    assert "--allowed-host" in response.text
    assert browser.client.get("/static/console.js", headers={"host": "evil.example"}).status_code == 421
    named = opened(hosts=frozenset({"console.example"}), on_loopback=False)
    assert named.client.get("/nodes", headers={"host": "console.example"}).status_code == 200
    assert named.client.get("/nodes").status_code == 421


@pytest.mark.rule("CT-163")
def test_another_site_gets_and_sends_nothing(browser: OwnConsole, fake: FakeCluster, audit: Path) -> None:
    page = browser.get("/configs?topic=orders&name=retention.ms")
    for path in (*QUESTIONS, *CHANGES):
        assert browser.post(path, origin="https://evil.example", csrf="x").status_code == 403
        refused = browser.post(path, csrf="x")
        assert refused.status_code == 403
        assert "earlier session" in refused.text
        assert browser.client.post(path, data={"csrf": "x"}).status_code == 403
        assert browser.client.get(path).status_code == 405
    browser.send(page, "/configs/change", value="1")  # the same form from its own page is taken
    loaded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert browser.client.get("/dlq", headers=loaded).status_code == 403
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert browser.client.get("/dlq", headers=followed).status_code == 200
    assert not audit.read_text()


@pytest.mark.rule("CT-163")
def test_a_form_that_is_too_large_is_refused(browser: OwnConsole) -> None:
    response = browser.client.post("/reset/plan", content=b"x" * (BODY_MAX + 1), headers={"origin": ORIGIN})
    assert response.status_code == 413


@pytest.mark.rule("CT-165")
def test_a_change_without_its_line_in_the_audit_log_is_not_made(
    browser: OwnConsole, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = browser.get("/configs?topic=orders&name=retention.ms")
    shown = browser.send(page, "/configs/change", value="60000").text

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(browser.console._audit, "write", full)
    refused = browser.send(shown, "/configs/change", status=503)
    assert "No space left on device" in refused.text
    assert "60000" not in browser.get("/configs?topic=orders")


@pytest.mark.rule("CT-168")
def test_last_figures_are_shown_while_the_cluster_is_away(browser: OwnConsole, fake: FakeCluster) -> None:
    session = browser.console._local
    assert session is not None
    session.settings = {**session.settings, "default.api.timeout.ms": "200", "request.timeout.ms": "100"}
    assert "Topics 2" in text_of(browser.get("/nodes"))
    fake.network.stop("node0:9000")
    old = text_of(browser.get("/nodes", status=503))
    assert "The cluster does not answer" in old
    assert re.search(r"These figures are .* old\.", old)
    assert "Topics 2" in old
    never = text_of(browser.get("/topics", status=503))
    assert "The cluster does not answer" in never
    fake.serve(0)
    assert "does not answer" not in text_of(browser.get("/nodes"))


@pytest.mark.rule("CT-162")
def test_what_the_user_may_not_is_said(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise TopicAuthorizationFailedError("User:ann may not DESCRIBE topic 'orders'.")

    monkeypatch.setattr(Admin, "list_topics", refused)
    text = text_of(browser.get("/topics", status=403))
    assert "User:ann may not DESCRIBE topic 'orders'. Sign in as a user who may." in text


def test_a_fault_is_a_page_too(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Admin, "list_topics", broken)
    browser.client._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
    response = browser.client.get("/topics")
    assert response.status_code == 500
    assert "The console failed: ZeroDivisionError." in text_of(response.text)
    assert "secret" not in response.text
    assert {name: response.headers[name] for name in HEADERS} == dict(HEADERS)


def test_fields_that_cannot_be_are_refused_by_name(browser: OwnConsole) -> None:
    for path, said in {
        "/records?topic=orders&offset=-1": "offset is '-1'; expected a whole number",
        "/records?topic=orders&partition=9999999999": "partition is 9999999999; expected less than",
        "/records": "does not say which topic",
        "/group?group=%20": "does not say which group",
        "/dlq/letters": "which letters?",
        "/dlq/letters?topic=dlq.orders&since=x": "is not a time",
        "/dlq/letters?topic=dlq.orders&at=1": "expected partition:offset",
        "/configs": "Whose configs?",
    }.items():
        assert said in text_of(browser.get(path, status=400)), path
    for path in ("/task?id=x", "/topic?topic=nope", "/records?topic=orders&offset=99", "/nope"):
        browser.get(path, status=404)


@pytest.mark.rule("CT-168")
def test_live_pages_are_those_with_figures(browser: OwnConsole) -> None:
    live = [path for path, query in OPEN.items() if "data-page" in browser.get(path + query)]
    assert live == ["/", "/dlq/topic", "/group", "/topic", "/memory", "/nodes"]
    assert browser.client.get("/live?page=/nope").status_code == 404


@pytest.mark.rule("CT-168")
def test_one_more_viewer_is_refused(browser: OwnConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.console.close_streams()
    response = browser.client.get("/live?page=/nodes")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "30"
