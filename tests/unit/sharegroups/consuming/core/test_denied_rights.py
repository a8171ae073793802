"""Which missing permissions are reported, and when a topic that may not be read is requested again."""

from __future__ import annotations

import pytest

from kip932.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from kip932.ids import TopicIdPartition
from sharegroups.connection.core.backoff import Backoff
from sharegroups.consuming.core.denied_rights import DeniedRights, DeniedTopics, Resource

T, U = b"t" * 16, b"u" * 16
T0, T1, U0 = TopicIdPartition(T, 0), TopicIdPartition(T, 1), TopicIdPartition(U, 0)
WANTED = {T0: "t", T1: "t", U0: "u"}
GROUP: Resource = ("group", "g")
TOPIC: Resource = ("topic", "t")
NO_GROUP, NO_TOPIC = GroupAuthorizationFailedError(), TopicAuthorizationFailedError()


def denied_topics(initial_ms: int = 100) -> DeniedTopics:
    return DeniedTopics(lambda: Backoff(initial_ms, 1000, lambda: 0.5))


@pytest.mark.rule("CL-143")
def test_a_refusal_is_reported_once_until_every_source_has_allowed_it() -> None:
    rights = DeniedRights()
    noted: list[tuple[object, dict[Resource, KafkaError], list[KafkaError]]] = [
        (1, {GROUP: NO_GROUP}, [NO_GROUP]),
        (1, {GROUP: NO_GROUP}, []),
        (2, {GROUP: NO_GROUP}, []),
        ("coordinator", {GROUP: NO_GROUP}, []),
        (1, {}, []),
        (1, {GROUP: NO_GROUP}, []),
        (1, {}, []),
        (2, {}, []),
        ("coordinator", {}, []),
        (2, {GROUP: NO_GROUP}, [NO_GROUP]),
    ]
    for source, refused, reported in noted:
        assert rights.note(source, refused).errors == reported


@pytest.mark.rule("CL-143")
def test_each_resource_is_reported_by_itself() -> None:
    rights = DeniedRights()
    assert rights.note(1, {TOPIC: NO_TOPIC}) == ([NO_TOPIC], [])
    assert rights.note(1, {TOPIC: NO_TOPIC, GROUP: NO_GROUP}) == ([NO_GROUP], [])
    assert rights.note(1, {GROUP: NO_GROUP}) == ([], [TOPIC])
    assert rights.note(1, {TOPIC: NO_TOPIC}) == ([NO_TOPIC], [GROUP])


@pytest.mark.rule("CL-143")
def test_a_resource_is_allowed_when_no_source_refuses_it_and_not_when_a_source_is_forgotten() -> None:
    rights = DeniedRights()
    rights.note(1, {TOPIC: NO_TOPIC})
    rights.note(2, {TOPIC: NO_TOPIC, GROUP: NO_GROUP})
    assert rights.note(1, {}).allowed == []
    rights.forget(2)
    assert rights.note(3, {}).allowed == []
    assert rights.note(1, {TOPIC: NO_TOPIC}).errors == [NO_TOPIC]


@pytest.mark.rule("CL-143")
def test_a_refused_topic_is_left_out_until_its_back_off_is_over() -> None:
    topics, now_ms, waits = denied_topics(), 0, []
    assert topics.askable(WANTED, now_ms) is WANTED
    for _ in range(6):
        topics.answered({T: NO_TOPIC}, WANTED, WANTED, now_ms)
        assert topics.errors() == {T: NO_TOPIC}
        assert topics.askable(WANTED, now_ms) == {U0: "u"}
        assert topics.not_before_ms(WANTED) == 0, "the other topic must not wait"
        until_ms = topics.not_before_ms([T0, T1])
        assert topics.askable(WANTED, until_ms - 1) == {U0: "u"}
        assert topics.askable(WANTED, until_ms) == WANTED
        waits.append(until_ms - now_ms)
        now_ms = until_ms
    assert waits == [100, 200, 400, 800, 1000, 1000]


@pytest.mark.rule("CL-143")
def test_a_topic_is_allowed_again_only_by_an_answer_about_it() -> None:
    topics = denied_topics()
    topics.answered({T: NO_TOPIC}, WANTED, WANTED, 0)
    topics.answered({}, [U0], WANTED, 50)
    assert topics.askable(WANTED, 60) == {U0: "u"}
    topics.answered({}, WANTED, WANTED, 150)
    assert not topics
    topics.answered({T: NO_TOPIC}, WANTED, WANTED, 200)
    assert topics.not_before_ms([T0]) == 300, "the back-off starts over"


@pytest.mark.rule("CL-143")
def test_a_topic_that_has_left_the_session_is_forgotten() -> None:
    topics = denied_topics()
    topics.answered({T: NO_TOPIC}, WANTED, WANTED, 0)
    topics.answered({}, [U0], [U0], 50)
    assert not topics
    assert topics.not_before_ms([]) == 0


@pytest.mark.rule("CL-143")
def test_the_shortest_wait_is_a_tenth_of_a_second_whatever_the_settings() -> None:
    topics = denied_topics(1)
    topics.answered({T: NO_TOPIC}, WANTED, WANTED, 0)
    assert topics.not_before_ms([T0]) == 100
