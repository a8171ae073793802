"""The text of an error about a missing right."""

from __future__ import annotations

import pytest

from kip932.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from sharegroups.connection.core.missing_rights import may_not_read, may_not_write

ALLOW = "An administrator can allow it: sharegroups acls add --allow-principal User:NAME"
FILE = " --command-config FILE"


@pytest.mark.rule("CL-143")
def test_a_text_without_the_topic_gets_it_and_the_command_that_helps() -> None:
    error = may_not_read(TopicAuthorizationFailedError(), "g 1", ["my orders"])
    assert error.message == (
        f"topic 'my orders': Not authorised for the topic. {ALLOW} --consumer --topic 'my orders' --group 'g 1'{FILE}"
    )
    error = may_not_write(TopicAuthorizationFailedError("no WRITE on 'orders'."), "orders")
    assert error.message == f"no WRITE on 'orders'. {ALLOW} --producer --topic orders{FILE}"


@pytest.mark.rule("CL-143")
def test_a_text_that_proposes_one_right_is_left_as_it_is_and_gets_all_that_the_client_needs() -> None:
    said = "no READ on topic 'orders'; sharegroups acls add --operation read --topic orders"
    more = " (or, for all that this client needs: --consumer --topic orders --group g)"
    explained = may_not_read(TopicAuthorizationFailedError(said), "g", ["orders"])
    assert explained.message == said + more
    assert may_not_read(explained, "g", ["orders"]).message == said + more, "it is said once"
    more = " (or, for all that this client needs: --producer --topic orders)"
    assert may_not_write(TopicAuthorizationFailedError(said), "orders").message == said + more


@pytest.mark.rule("CL-143")
def test_nothing_is_proposed_where_no_one_may_change_entries() -> None:
    said = "User:a may not WRITE TOPIC 't'. No one may change entries on this cluster: set super.users=User:NAME"
    assert may_not_write(TopicAuthorizationFailedError(said), "t").message == said


@pytest.mark.rule("CL-143")
def test_the_error_of_a_group_names_its_topics_in_the_command_up_to_five() -> None:
    error = may_not_read(GroupAuthorizationFailedError("no READ on group 'g'."), "g", list("abcdefg"))
    topics = " ".join(f"--topic {name}" for name in "abcde")
    assert error.message == f"no READ on group 'g'. {ALLOW} --consumer {topics} --group g{FILE}"


@pytest.mark.rule("CL-143")
def test_nothing_is_proposed_beside_a_denial_which_no_further_entry_outweighs() -> None:
    said = "User:a may not WRITE TOPIC 't'. An entry denies it: sharegroups acls list"
    assert may_not_write(TopicAuthorizationFailedError(said), "t").message == said
