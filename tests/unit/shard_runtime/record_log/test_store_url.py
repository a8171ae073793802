"""Store URLs in messages and logs: however a person wrote them, no part of a password is shown."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from kip932.store_settings import SentinelAccess, StoreAccess
from kip932.store_tls import FOR_SENTINELS, StoreTls
from shard_runtime.config.process_settings import load_settings
from shard_runtime.logs import configure_logs
from shard_runtime.record_log.redis.topology import open_store
from shard_runtime.record_log.store_url import has_password, masked, masked_url, with_password, without_password
from share_metrics.reader import Store

_NO_FILE = SentinelAccess(tls=StoreTls(Path("/nowhere/ca"), prefix=FOR_SENTINELS))
#: Half of them are written by someone who does not know that these characters must be escaped.
_WITH_PASSWORD = [
    "redis://:geheim@h:1/0",
    "redis://u:geheim@h:1/0",
    "rediss://u:geheim@h:1/0?ssl_cert_reqs=none",
    "redis://h:1/0?password=geheim&protocol=3",
    "redis+sentinel://u:geheim@a:1,b:2/main",
    "redis+sentinel://a:1,b:2/main?sentinel_username=u&sentinel_password=geheim",
    "rediss+cluster://:geheim@a:1,b:2",
    "unix://u:geheim@/tmp/s.sock?db=1",
    "redis://:geheim/x@h:1",
    "redis://:x@geheim@h:1",
    "redis://u:7?geheim@h:1",
    "redis://u:7#geheim@h:1",
    "redis://:[geheim@h:1",
    "redis://:\u2100geheim@h:1",
    "redis://geheim@h:1",
    "redis://: geheim@h:1",
    "redis:/:geheim@h:1",
    ":geheim@h:1",
    "tcp://:geheim@h:1",
    "redis+sentinel://:geheim@h:1",
    "redis://:geheim@h:port",
]


@pytest.mark.rule("CM-61a")
@pytest.mark.parametrize("url", _WITH_PASSWORD)
def test_no_message_shows_a_password(url: str) -> None:
    assert "geheim" not in masked_url(url)
    assert has_password(url)
    said = []
    for opened in (open_store, Store):
        try:
            opened(url)
        except ValueError as error:
            said.append(str(error))
    assert "geheim" not in " ".join(said)
    assert "geheim" not in repr(load_settings({"store.url": url}))


@pytest.mark.rule("CM-61a")
@pytest.mark.parametrize("url", [url for url in _WITH_PASSWORD if "://" in url and " " not in url])
@pytest.mark.parametrize("form", ["json", "console"])
def test_no_log_line_shows_a_password(url: str, form: str) -> None:
    out = io.StringIO()
    try:
        configure_logs("info", form, out)
        log = structlog.get_logger("a.test")
        log.warning(f"of {url}", store=url, many=[url, {"deep": url}], error=ValueError(f"no {url}"))
        try:
            geheim = url
            raise RuntimeError(f"{geheim} is away")
        except RuntimeError:
            log.exception("it ended")
    finally:
        structlog.reset_defaults()
    assert "geheim@" not in out.getvalue().replace("***", "")
    assert "geheim" not in out.getvalue().replace("geheim = url", "").replace("{geheim}", "")
    if form == "json":
        assert all(json.loads(line) for line in out.getvalue().splitlines())


@pytest.mark.parametrize("url", ["redis://h:1/0", "unix:///tmp/s.sock", "redis://h:1?client_name=a"])
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert masked(url) == masked_url(url) == without_password(url) == url
    assert not has_password(url)
    open_store(url)


def test_the_address_stays() -> None:
    said = "try redis://USER:PASSWORD@HOST:PORT or redis://:PASSWORD@HOST:PORT"
    assert masked(said) == said
    assert masked("no redis://u:p@h:1/0 and http://x there") == "no redis://***@h:1/0 and http://x there"
    assert (
        without_password("redis+sentinel://u:p@a:1,b:2/main?password=q&db=1") == "redis+sentinel://u@a:1,b:2/main?db=1"
    )


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://h:1/0", "redis://:a%2Fb%40c@h:1/0"),
        ("redis+sentinel://u@a:1,b:2/main", "redis+sentinel://u:a%2Fb%40c@a:1,b:2/main"),
        ("unix:///tmp/s.sock", "unix://:a%2Fb%40c@/tmp/s.sock"),
    ],
)
def test_a_password_given_by_itself_comes_into_the_url(url: str, whole: str) -> None:
    assert with_password(url, "a/b@c") == whole
    assert without_password(whole) == url
    open_store(whole)
    with pytest.raises(ValueError, match="another one was given beside it"):
        with_password(whole, "d")


@pytest.mark.rule("CM-230")
@pytest.mark.parametrize(
    ("url", "sentinel", "said"),
    [
        ("redis://h:1", SentinelAccess("watch"), "store.sentinel.username is set, but store.url names no Sentinels"),
        ("rediss+cluster://h:1", SentinelAccess(encrypted=False), "store.sentinel.ssl.enable is set, but store.url"),
        ("redis+sentinel://h:1/m", SentinelAccess(encrypted=False), "store.sentinel.ssl.enable is false, but "),
        (
            "redis+sentinel://h:1/m",
            SentinelAccess(password=Path("/nowhere/p")),
            "store.sentinel.password.location=/now",
        ),
        ("redis+sentinel://h:1/m", _NO_FILE, "store.sentinel.ssl.* is set, but connections"),
        ("rediss+sentinel://h:1/m", _NO_FILE, "store.sentinel.ssl.ca.location=/nowhere/ca: it cannot be used"),
        ("rediss+sentinel://h:1/m", replace(_NO_FILE, encrypted=False), "store.sentinel.ssl.enable is false"),
    ],
)
def test_settings_of_sentinels_that_cannot_be_used_are_refused_at_once(
    url: str, sentinel: SentinelAccess, said: str
) -> None:
    for opened in (open_store, Store):
        with pytest.raises(ValueError, match=re.escape(said)):
            opened(url, access=StoreAccess(sentinel=sentinel))
