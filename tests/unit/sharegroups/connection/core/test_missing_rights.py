"""The text of an error about a missing right."""

from __future__ import annotations

import pytest

from kip932.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from sharegroups.connection.core.missing_rights import may_not_read, may_not_write

ADD = "sharegroups acls add --allow-principal User:NAME"


@pytest.mark.rule("CL-143")
def test_a_text_without_the_topic_gets_it_and_the_command_that_helps() -> None:
    error = may_not_read(TopicAuthorizationFailedError(), "g 1", ["my orders"])
    assert error.message == (
        f"topic 'my orders': Not authorised for the topic. Allow it: {ADD} --consumer --topic 'my orders' --group 'g 1'"
    )
    error = may_not_write(TopicAuthorizationFailedError("no WRITE on 'orders'."), "orders")
    assert error.message == f"no WRITE on 'orders'. Allow it: {ADD} --producer --topic orders"


@pytest.mark.rule("CL-143")
def test_a_text_that_says_what_to_do_is_left_as_it_is() -> None:
    said = "no READ on topic 'orders'; sharegroups acls add --operation read --topic orders"
    assert may_not_read(TopicAuthorizationFailedError(said), "g", ["orders"]).message == said
    assert may_not_write(TopicAuthorizationFailedError(said), "orders").message == said


@pytest.mark.rule("CL-143")
def test_the_error_of_a_group_names_its_topics_in_the_command_up_to_five() -> None:
    error = may_not_read(GroupAuthorizationFailedError("no READ on group 'g'."), "g", list("abcdefg"))
    topics = " ".join(f"--topic {name}" for name in "abcde")
    assert error.message == f"no READ on group 'g'. Allow it: {ADD} --consumer {topics} --group g"


@pytest.mark.rule("CL-143")
def test_nothing_is_proposed_beside_a_denial_which_no_further_entry_outweighs() -> None:
    said = "User:a may not WRITE TOPIC 't'. An entry denies it: sharegroups acls list"
    assert may_not_write(TopicAuthorizationFailedError(said), "t").message == said
