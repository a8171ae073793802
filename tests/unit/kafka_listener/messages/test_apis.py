"""The APIs of the table: found by key and by name, each with its versions."""

from __future__ import annotations

import pytest

from kafka_listener.messages.apis import APIS, Api, api
from tests.support.kafka_values import DIRECTIONS, full


@pytest.mark.rule("KL-30")
def test_apis_are_found_by_key_and_by_name() -> None:
    assert APIS[78] is api("ShareFetch")
    assert (api("ShareFetch").key, api("ShareFetch").name, api("ShareFetch").versions) == (
        78,
        "ShareFetch",
        range(1, 3),
    )
    assert repr(api("Fetch")) == "Api(Fetch, 1, versions 4 to 17)"
    assert list(APIS) == sorted(one.key for one in APIS.values())
    with pytest.raises(KeyError):
        api("JoinGroup")


@pytest.mark.rule("KL-30")
@pytest.mark.parametrize("one", APIS.values(), ids=lambda one: one.name)
def test_what_is_written_is_read_in_each_version(one: Api) -> None:
    for version in one.versions:
        for direction in DIRECTIONS:
            for value in (getattr(one, direction)(), full(one, direction, version)):
                data = b"".join(getattr(one, f"encode_{direction}")(version, value))
                assert getattr(one, f"decode_{direction}")(version, data) == value


@pytest.mark.parametrize("version", [-1, 3, 18])
def test_a_version_that_the_table_does_not_have_is_refused(version: int) -> None:
    for read in (api("Fetch").decode_request, api("Fetch").decode_response):
        with pytest.raises(ValueError, match=f"Fetch has no version {version} here; expected 4 to 17"):
            read(version, b"")
    for write in (api("Fetch").encode_request, api("Fetch").encode_response):
        with pytest.raises(ValueError, match=f"Fetch has no version {version} here; expected 4 to 17"):
            write(version, api("Fetch").request())
