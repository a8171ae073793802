"""Which hosts, origins and addresses the console accepts."""

from __future__ import annotations

import pytest

from sharegroups.console.guard import HEADERS, is_known_host, is_same_origin, listen_refusal


@pytest.mark.rule("CT-163")
@pytest.mark.parametrize("host", ["127.0.0.1:7980", "localhost:7980", "LOCALHOST", "[::1]:7980", "127.0.0.2"])
def test_names_of_this_machine_are_known_on_loopback_alone(host: str) -> None:
    assert is_known_host(host, (), on_loopback=True)
    assert not is_known_host(host, (), on_loopback=False)


@pytest.mark.rule("CT-163")
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:7980", "localhost.evil.example", "", "[", "a@b"]
)
def test_other_names_are_not(host: str) -> None:
    assert not is_known_host(host, ("console.example",), on_loopback=True)


@pytest.mark.rule("CT-163")
def test_a_given_name_is_known() -> None:
    assert is_known_host("Console.Example:443", ("console.example",), on_loopback=False)


@pytest.mark.rule("CT-163")
@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"host": "a:1", "origin": "http://a:1"}, True),
        ({"host": "a", "origin": "https://a"}, True),
        ({"host": "a:1", "sec-fetch-site": "same-origin"}, True),
        ({"host": "a:1", "origin": "http://a:2"}, False),
        ({"host": "a:1", "origin": "http://b:1"}, False),
        ({"host": "a:1", "origin": "null"}, False),
        ({"host": "a:1", "origin": "null", "sec-fetch-site": "same-origin"}, False),
        ({"host": "a:1", "origin": "ftp://a:1"}, False),
        ({"host": "a:1", "origin": "http://["}, False),
        ({"host": "", "origin": "http://"}, False),
        ({"host": "a:1", "sec-fetch-site": "same-site"}, False),
        ({"host": "a:1", "sec-fetch-site": "none"}, False),
        ({"host": "a:1"}, False),
    ],
)
def test_a_form_comes_from_a_page_of_the_console(headers: dict[str, str], same: bool) -> None:
    assert is_same_origin(headers) is same


@pytest.mark.rule("CT-162")
def test_an_address_of_other_machines_needs_tls() -> None:
    said = listen_refusal("0.0.0.0", has_certificate=False, behind_tls_proxy=False)
    assert said is not None
    assert "--certificate" in said
    assert "--behind-tls-proxy" in said
    assert listen_refusal("0.0.0.0", has_certificate=True, behind_tls_proxy=False) is None
    assert listen_refusal("0.0.0.0", has_certificate=False, behind_tls_proxy=True) is None
    for host in ("127.0.0.1", "::1", "localhost"):
        assert listen_refusal(host, has_certificate=False, behind_tls_proxy=False) is None


@pytest.mark.rule("CT-161")
def test_the_policy_permits_own_files_alone() -> None:
    policy = dict(each.split(" ", 1) for each in HEADERS["Content-Security-Policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert {"script-src", "style-src", "form-action", "base-uri", "frame-ancestors"} <= policy.keys()
