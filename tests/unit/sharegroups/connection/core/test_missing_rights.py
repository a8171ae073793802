"""The text of an error about a missing permission."""

from __future__ import annotations

import pytest

from kip932.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from sharegroups.connection.core.missing_rights import may_not_read, may_not_work, may_not_write

ALLOW = "An administrator can allow it: sharegroups acls add --allow-principal"
FILE = " --command-config FILE"
SEE = "An entry denies it, whatever other entries allow. An administrator can see which one, and how to remove it: "


@pytest.mark.rule("CL-143")
def test_a_text_without_the_topic_gets_it_and_the_command_that_helps() -> None:
    error = may_not_read(TopicAuthorizationFailedError(), "g 1", ["my orders"])
    assert error.message == (
        f"topic 'my orders': Not authorised for the topic. {ALLOW} User:NAME --consumer --topic 'my orders' "
        f"--group 'g 1'{FILE}"
    )
    error = may_not_write(TopicAuthorizationFailedError("no WRITE on 'orders'."), ["orders"], None)
    assert error.message == f"no WRITE on 'orders'. {ALLOW} User:NAME --producer --topic orders{FILE}"


@pytest.mark.rule("CL-143", "CL-164")
def test_the_command_for_one_right_becomes_the_one_for_all_that_the_client_needs() -> None:
    said = f"User:bob may not READ TOPIC 'orders'. {ALLOW} User:bob --operation READ --topic orders{FILE}"
    read = may_not_read(TopicAuthorizationFailedError(said), "g", ["orders"])
    assert (
        read.message
        == f"User:bob may not READ TOPIC 'orders'. {ALLOW} User:bob --consumer --topic orders --group g{FILE}"
    )
    assert may_not_read(read, "g", ["orders"]).message == read.message, "the command must not be added twice"
    worked = may_not_work(read, "g", ["orders"])
    assert worked.message == read.message.replace("--consumer", "--worker")
    written = may_not_write(TopicAuthorizationFailedError(said), ["orders"], "pay")
    assert written.message.endswith(f"{ALLOW} User:bob --producer --topic orders --transactional-id pay{FILE}")


@pytest.mark.rule("CL-164")
def test_a_producer_that_may_write_nowhere_is_allowed_the_topics_that_it_has_records_for() -> None:
    said = f"User:bob may not WRITE to any topic. {ALLOW} User:bob --producer --topic NAME{FILE}"
    error = may_not_write(ClusterAuthorizationFailedError(said), ["a", "b"], None)
    assert error.message.endswith(f"{ALLOW} User:bob --producer --topic a --topic b{FILE}")
    what = "--operation WRITE --transactional-id pay"
    said = f"User:bob may not WRITE TRANSACTIONAL_ID 'pay'. {ALLOW} User:bob {what}{FILE}"
    unknown = may_not_write(TransactionalIdAuthorizationFailedError(said), [], "pay")
    assert unknown.message.endswith(f"{ALLOW} User:bob --producer --topic NAME --transactional-id pay{FILE}")


@pytest.mark.rule("CL-143")
def test_nothing_is_proposed_where_no_one_may_change_entries() -> None:
    said = "User:a may not WRITE TOPIC 't'. No one may change entries on this cluster: set super.users=User:NAME"
    assert may_not_write(TopicAuthorizationFailedError(said), ["t"], None).message == said


@pytest.mark.rule("CL-143")
def test_the_error_of_a_group_names_its_topics_in_the_command_up_to_five() -> None:
    error = may_not_read(GroupAuthorizationFailedError("no READ on group 'g'."), "g", list("abcdefg"))
    topics = " ".join(f"--topic {name}" for name in "abcde")
    assert error.message == f"no READ on group 'g'. {ALLOW} User:NAME --consumer {topics} --group g{FILE}"


@pytest.mark.rule("CL-143", "CL-164")
def test_beside_a_denial_no_entry_is_proposed_but_how_to_see_which_one_it_is() -> None:
    explain = "sharegroups acls explain --principal User:a --operation WRITE --topic"
    said = f"User:a may not WRITE TOPIC 't'. {SEE}{explain} t{FILE}"
    assert may_not_write(TopicAuthorizationFailedError(said), ["t"], None).message == said
    by_id = f"User:a may not WRITE the topic with the id x. {SEE}{explain} NAME{FILE}"
    error = may_not_write(TopicAuthorizationFailedError(by_id), ["t"], None)
    assert error.message == f"topic 't': User:a may not WRITE the topic with the id x. {SEE}{explain} t{FILE}"
    older = "User:a may not WRITE TOPIC 't'. An entry denies it: sharegroups acls list"
    assert may_not_write(TopicAuthorizationFailedError(older), ["t"], None).message == older
