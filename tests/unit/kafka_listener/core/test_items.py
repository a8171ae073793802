"""Items that requests name."""

from typing import Any

import pytest

from kafka_listener.core.items import items_named
from kafka_listener.messages.apis import api

FETCH = api("ShareFetch").request


def partition(ranges: int = 0) -> Any:
    return FETCH.FetchPartition(acknowledgement_batches=[FETCH.AcknowledgementBatch()] * ranges)


@pytest.mark.rule("KL-19")
@pytest.mark.parametrize(
    ("request_", "count"),
    [
        (api("ListGroups").request(), 0),
        (api("DeleteGroups").request(groups_names=["a", "b", "c"]), 3),
        (api("Metadata").request(topics=None), 0),
        (FETCH(topics=[FETCH.FetchTopic(partitions=[partition(7)] * 3)] * 2), 6),
        (FETCH(topics=[FETCH.FetchTopic()] * 5), 5),
        (FETCH(topics=[FETCH.FetchTopic()], forgotten_topics_data=[FETCH.ForgottenTopic(partitions=[1] * 9)]), 9),
    ],
)
def test_items_are_counted_in_lists_and_in_the_lists_of_those(request_: Any, count: int) -> None:
    assert items_named(request_) == count
