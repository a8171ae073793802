"""Signing in and out: with a password, a token, the link; what is refused, and what a browser holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kip932.errors import SaslAuthenticationFailedError
from sharegroups.cli import clients
from sharegroups.console import sign_in
from sharegroups.console.sessions import IDLE_S
from sharegroups.console.sign_in import SignIn, has_credentials, own_name, without_credentials
from sharegroups.console.visit import RefusedError
from tests.support.fake_cluster.cluster import FakeCluster

from .browser import ORIGIN, OwnConsole, text_of
from .conftest import Open, lines_of

PASSWORD = {"user": "ann", "password": "correct horse"}


class Doorman:
    """Opens clients of the fake cluster for those who give the right password or token."""

    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake
        self.seen: list[Mapping[str, Any]] = []
        self.asked_at_once = self.most = 0

    def __call__(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        self.seen.append(settings)
        if settings.get("sasl.password") != "correct horse" and settings.get("sasl.oauthbearer.token") != "right":
            raise SaslAuthenticationFailedError("the password of user 'ann' is wrong")
        return kind(settings, transport=self.fake.transport())


@pytest.fixture
def door(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Doorman:
    made = Doorman(fake)
    monkeypatch.setattr(clients, "open_client", made)
    monkeypatch.setattr(sign_in.SignIn.__init__, "__defaults__", (0.0,))
    return made


@pytest.fixture
def public(opened: Open, door: Doorman) -> OwnConsole:
    """A console whose users sign in."""
    return opened(local="", settings={"bootstrap.servers": "node0:9000", "sasl.username": "x", "sasl.password": "y"})


@pytest.mark.rule("CT-162", "CT-165")
def test_a_user_signs_in_with_a_password_and_out(public: OwnConsole, door: Doorman, audit: Path) -> None:
    asked = public.client.get("/group?group=g")
    assert asked.url.path == "/sign-in"
    response = public.client.post("/sign-in", data={**PASSWORD, "to": "/group?group=g"}, headers={"origin": ORIGIN})
    assert response.url.path == "/group"
    assert "User:ann" in response.text
    cookie = response.history[0].headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Secure" not in cookie
    assert not any(secret in cookie for secret in ("ann", "correct", "horse"))
    assert {(each["sasl.username"], each["sasl.password"]) for each in door.seen} == {("ann", "correct horse")}
    (line,) = lines_of(audit)
    assert (line["user"], line["action"], line["outcome"]) == ("User:ann", "sign in", "done")
    assert "horse" not in audit.read_text()
    out = public.send(response.text, "/sign-out")
    assert out.url.path == "/sign-in"
    assert public.client.get("/nodes").url.path == "/sign-in"
    assert len(public.console.sessions) == 0


@pytest.mark.rule("CT-162")
def test_the_cookie_of_an_ended_session_opens_nothing(public: OwnConsole) -> None:
    response = public.client.post("/sign-in", data=PASSWORD, headers={"origin": ORIGIN})
    name = response.history[0].headers["set-cookie"].partition("=")[2].partition(";")[0]
    for session in public.console.sessions._by_hash.values():
        session.seen_s -= IDLE_S
    assert public.client.get("/nodes", headers={"cookie": f"sharegroups-7980={name}"}).url.path == "/sign-in"


@pytest.mark.rule("CT-162")
def test_a_token(public: OwnConsole, audit: Path) -> None:
    response = public.post("/sign-in", token="right")
    assert response.url.path == "/"
    assert lines_of(audit)[0]["user"].startswith("token ")
    assert "right" not in audit.read_text()


@pytest.mark.rule("CT-162", "CT-165")
@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"user": "ann", "password": "wrong"}, 401, "the password of user 'ann' is wrong"),
        ({"token": "wrong"}, 401, "does not accept this"),
        ({"user": "ann"}, 400, "Enter a name and a password, or a token"),
        ({}, 400, "Enter a name and a password, or a token"),
        ({"user": "ann", "password": "x", "token": "y"}, 400, "Enter a name and a password, or a token"),
        ({"user": "ann", "password": "x" * 8_000}, 400, "at most 7000 characters"),
    ],
)
def test_what_is_refused(public: OwnConsole, audit: Path, fields: dict[str, str], status: int, said: str) -> None:
    response = public.post("/sign-in", **fields)
    assert response.status_code == status
    assert said in text_of(response.text)
    assert "set-cookie" not in response.headers
    assert lines_of(audit)[0]["outcome"].startswith("refused: ")


@pytest.mark.rule("CT-163")
def test_another_site_signs_no_one_in(public: OwnConsole) -> None:
    assert public.post("/sign-in", origin="https://evil.example", **PASSWORD).status_code == 403
    assert len(public.console.sessions) == 0


@pytest.mark.rule("CT-162")
@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"])
def test_it_leads_to_the_console_alone(public: OwnConsole, to: str) -> None:
    response = public.client.post("/sign-in", data={**PASSWORD, "to": to}, headers={"origin": ORIGIN})
    assert str(response.url) == f"{ORIGIN}/"


@pytest.mark.rule("CT-162")
def test_the_link_signs_in_with_the_settings_of_the_command(opened: Open, door: Doorman) -> None:
    own = {"bootstrap.servers": "node0:9000", "sasl.oauthbearer.token": "right"}
    browser = opened(local="", link="the-secret", own=own, own_name="token 1")
    assert browser.client.get("/nodes").url.path == "/sign-in"
    wrong = browser.client.get("/sign-in?link=the-secre")
    assert "not the one of the console that runs now" in wrong.text
    assert browser.client.get("/nodes").url.path == "/sign-in"
    assert browser.client.get("/sign-in?link=the-secret").url.path == "/"
    assert "token 1" in browser.get("/nodes")


@pytest.mark.rule("CT-162")
def test_without_a_link_an_empty_one_signs_no_one_in(public: OwnConsole) -> None:
    for query in ("?link=", "?link=x", ""):
        assert public.client.get(f"/sign-in{query}").status_code == 200
    assert len(public.console.sessions) == 0


@pytest.mark.rule("CT-162")
def test_with_tls_the_cookie_is_secure(opened: Open, door: Doorman) -> None:
    browser = opened(local="", secure=True)
    response = browser.client.post("/sign-in", data=PASSWORD, headers={"origin": ORIGIN}, follow_redirects=False)
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-sharegroups-7980=")
    assert "Secure" in cookie
    assert "strict-transport-security" in response.headers


@pytest.mark.rule("CT-162")
def test_four_are_checked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    async def check(*_: object) -> None:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        running -= 1
        raise SaslAuthenticationFailedError("no")

    monkeypatch.setattr(sign_in, "run_in_threadpool", check)

    async def all_of_them() -> None:
        door = SignIn({}, refused_s=0)
        found = await asyncio.gather(*(door.checked(PASSWORD) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(each, RefusedError) for each in found)

    asyncio.run(all_of_them())
    assert most == 4


@pytest.mark.rule("CT-162")
def test_what_counts_as_credentials() -> None:
    plain = {"bootstrap.servers": "a:1", "ssl.ca.location": "ca", "sasl.oauthbearer.allow.plaintext": "true"}
    assert not has_credentials(plain)
    assert without_credentials(plain) == plain
    for name in ("sasl.password.location", "sasl.oauthbearer.token", "sasl.oauthbearer.token.location"):
        assert has_credentials({**plain, name: "x"})
        assert without_credentials({**plain, name: "x"}) == plain
    assert has_credentials({**plain, "ssl.certificate.location": "c.crt"})
    assert own_name({"sasl.username": "ann"}) == "User:ann"
    assert own_name({"ssl.certificate.location": "c.crt"}) == "user of c.crt"
