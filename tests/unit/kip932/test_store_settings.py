"""Where the store is and how to reach it, as commands read it: option, environment, file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kip932.store_settings import SentinelAccess, StoreAccess, read_store, sentinel_login
from kip932.store_tls import FOR_SENTINELS, StoreTls

FILE = """
"lease.ms" = 3000
[store]
url = "rediss://file:1"
username = "by-file"
replicas = 2
"password.location" = "/p"
[store.ssl]
"ca.location" = "/ca"
"certificate.location" = "/c"
"key.location" = "/k"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(FILE)
    return tmp_path / "node.toml"


@pytest.mark.rule("CM-200")
def test_a_nodes_file_says_all_and_its_other_settings_are_not_read(file: Path) -> None:
    access = StoreAccess("by-file", Path("/p"), StoreTls(Path("/ca"), Path("/c"), Path("/k")))
    assert read_store("", {}, file) == ("rediss://file:1", access)
    assert read_store("", {"SHAREGROUPS_CONFIG": str(file)}) == ("rediss://file:1", access)
    assert StoreAccess.of(access.texts()) == access


@pytest.mark.rule("CM-200")
def test_an_option_wins_over_the_file_that_is_named_and_that_over_the_environment(file: Path) -> None:
    environ = {"SHAREGROUPS_STORE_URL": "rediss://file:1", "SHAREGROUPS_STORE_USERNAME": "by-env", "HOME": "/"}
    environ |= {"SHAREGROUPS_LOG_LEVEL": "debug", "SHAREGROUPS_STORE_PORT_6379_TCP": "tcp://10.0.0.1:6379"}
    url, access = read_store("", environ, file)
    assert (url, access.username, access.password) == ("rediss://file:1", "by-file", Path("/p"))
    assert read_store("redis://option:1", environ, file)[0] == "redis://option:1"
    url, access = read_store("", environ | {"SHAREGROUPS_CONFIG": str(file)})
    assert (url, access.username, access.password) == ("rediss://file:1", "by-env", Path("/p"))
    assert read_store("", {}) == ("", StoreAccess())


@pytest.mark.rule("CM-200")
def test_what_the_environment_says_about_another_store_is_not_used(file: Path) -> None:
    environ = {"SHAREGROUPS_STORE_URL": "rediss://u:p@prod:1/0", "SHAREGROUPS_STORE_PASSWORD_LOCATION": "/prod"}
    assert read_store("redis://elsewhere:1", environ) == ("redis://elsewhere:1", StoreAccess())
    assert read_store("redis://prod:1", environ)[1].password == Path("/prod"), "the same store"
    assert read_store("", environ, file)[1].password == Path("/p")
    file.write_text('[store]\nurl = "redis://other:1"\n')
    assert read_store("", environ, file) == ("redis://other:1", StoreAccess())


@pytest.mark.rule("CM-200")
@pytest.mark.parametrize(
    ("text", "environ", "said"),
    [
        ('store.ssl.ca.locaton = "/ca"', {}, "Unknown setting: store.ssl.ca.locaton in "),
        ('store.ssl.ca.locaton = "/ca"', {}, "store.ssl.ca.location"),
        ("store = ", {}, "is not TOML"),
        ('store.password = "p"', {}, "Put it into a file and name that in store.password.location"),
        ("", {"SHAREGROUPS_STORE_PASSWORD": "p"}, "(variable SHAREGROUPS_STORE_PASSWORD_LOCATION)"),
        ("", {"SHAREGROUPS_STORE_PASSWORD": "p"}, "give that name with --password-env"),
        ('store.sentinel.password = "p"', {}, "name that in store.sentinel.password.location (variable SHAREGROUPS_"),
        ("", {"SHAREGROUPS_STORE_SENTINEL_PASSWORD": "p"}, "SHAREGROUPS_STORE_SENTINEL_PASSWORD_LOCATION"),
        ("", {"SHAREGROUPS_STORE_SSL_CA": "/ca"}, "Unknown setting: SHAREGROUPS_STORE_SSL_CA in the environment"),
    ],
)
def test_what_would_have_no_effect_is_refused(tmp_path: Path, text: str, environ: dict[str, str], said: str) -> None:
    (tmp_path / "node.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(said)):
        read_store("", environ, tmp_path / "node.toml")


@pytest.mark.rule("CM-200")
def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"settings file .*nowhere\.toml cannot be read: No such file"):
        read_store("", {"SHAREGROUPS_CONFIG": str(tmp_path / "nowhere.toml")})


@pytest.mark.rule("CM-230", "CM-200")
def test_sentinels_have_settings_of_their_own(tmp_path: Path) -> None:
    files = StoreTls(Path("/sca"), Path("/sc"), Path("/sk"), FOR_SENTINELS)
    access = StoreAccess("u", sentinel=SentinelAccess("watch", Path("/sp"), files))
    assert StoreAccess.of(access.texts()) == access
    assert access.sentinel.given == "store.sentinel.username"
    plain = StoreAccess(sentinel=SentinelAccess(encrypted=False))
    assert plain.texts() == {"store.sentinel.ssl.enable": "false"}
    assert StoreAccess.of(plain.texts()) == plain
    assert (StoreAccess.of({}).texts(), SentinelAccess().given) == ({}, "")
    environ = {"SHAREGROUPS_STORE_SENTINEL_PASSWORD_LOCATION": "/sp", "SHAREGROUPS_STORE_SENTINEL_PORT": "tcp://h:1"}
    assert read_store("redis+sentinel://h:1/m", environ)[1].sentinel == SentinelAccess(password=Path("/sp"))
    with pytest.raises(ValueError, match=r"store\.sentinel\.ssl\.enable: it must be true or false"):
        StoreAccess.of({"store.sentinel.ssl.enable": "no"})


@pytest.mark.rule("CM-230", "CM-61a")
def test_the_options_of_a_url_for_sentinels_are_taken_out_and_given_once() -> None:
    query = {"sentinel_username": "watch", "sentinel_password": "geheim", "db": "1"}
    assert sentinel_login(query, SentinelAccess()) == ("watch", "geheim")
    assert query == {"db": "1"}
    assert sentinel_login({}, SentinelAccess("other")) == ("other", None)
    with pytest.raises(ValueError, match=r"sentinel_username=watch, but store\.sentinel\.username is other"):
        sentinel_login({"sentinel_username": "watch"}, SentinelAccess("other"))
    with pytest.raises(ValueError, match=r"store\.sentinel\.password\.location=/p names another") as refused:
        sentinel_login({"sentinel_password": "geheim"}, SentinelAccess(password=Path("/p")))
    assert "geheim" not in str(refused.value)
