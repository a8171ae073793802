"""Which scenarios run again through the Kafka listener: all of them, but for those below, each with its reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

_OURS: Final = "our own client or tool, which speaks gRPC; Kafka's have test_share_consumers and test_admin_clients"
_BETWEEN_NODES: Final = "requests between nodes, which no client sends"
_STARTS: Final = "starts that fail, before there is any request"
_NODES: Final = "what nodes do when one comes or dies, at whichever port; test_nodes has that with Kafka's clients"
_NO_API: Final = "Kafka has no request for it"
_NO_WORDS: Final = "it is about a text for which Kafka's answer has no place"
_SESSION_ID: Final = "Kafka has no session ids: the connection stands for it (KL-81)"
_OTHER_BYTES: Final = "it sends what are no records in our format; test_bad_input has damaged batches of Kafka's"
_IN_ORDER: Final = "a later answer comes before an earlier one; those of a connection leave in their order (KL-4)"

#: Modules, and tests as `module::test`, below tests/integration/scenarios.
LEFT_OUT: Final[Mapping[str, str]] = {
    "test_admin_client": _OURS,
    "test_bad_producers::test_a_fenced_producer_writes_and_ends_nothing_more": _NO_WORDS,
    "test_bad_producers::test_the_end_of_an_unknown_transaction_is_refused": _NO_WORDS,
    "test_bad_requests::test_a_consumer_without_a_cluster_polls_empty_and_closes": _OURS,
    "test_bad_requests::test_an_oversized_message_is_refused_and_the_connection_lives": (
        "a request that is too large closes the connection (KL-1); test_connections has that"
    ),
    "test_bad_requests::test_batches_that_cannot_be_stored": _OTHER_BYTES,
    "test_bad_requests::test_a_malformed_frame_is_an_invalid_argument": (
        "bytes that are no message of gRPC's; test_bad_input has those of Kafka's"
    ),
    "test_bad_requests::test_the_client_names_a_topic_that_does_not_exist": _OURS,
    "test_bad_requests::test_the_client_names_an_address_that_does_not_answer": _OURS,
    "test_bad_requests::test_unknown_topics": _NO_WORDS,
    "test_bad_requests::test_what_is_not_served_is_unimplemented": _BETWEEN_NODES,
    "test_bad_start": _STARTS,
    "test_change_lines": _OURS,
    "test_client": _OURS,
    "test_compression": _OURS,
    "test_consumed_retention": "it has its own cluster: see test_own_clusters",
    "test_consumed_retention::test_a_leader_asks_the_share_coordinators_of_other_processes": _NODES,
    "test_dead_letter_tool": _OURS,
    "test_dead_workers": _OURS,
    "test_delays_over_crashes": _OURS,
    "test_delays_seen": _OURS,
    "test_deliveries::test_a_fetch_that_asks_for_no_bytes_of_a_partition_is_refused_and_acquires_nothing": (
        "ShareFetch has no partition_max_bytes since version 1"
    ),
    "test_describing::test_a_group_that_is_named_twice_has_one_entry": (
        "an answer of Kafka's has an entry for each time that a group is named (KL-72)"
    ),
    "test_describing::test_keys_of_coordinators": _BETWEEN_NODES,
    "test_explanations": _NO_API,
    "test_fetch_and_acknowledge::test_a_request_of_an_earlier_session_of_the_member_is_refused": _SESSION_ID,
    "test_frozen_members": _OURS,
    "test_group_change_faults": _NODES,
    "test_group_change_kills": _NODES,
    "test_group_tool": _OURS,
    "test_isolation::test_a_transaction_that_is_not_ended_is_aborted_at_its_time_out": _NO_WORDS,
    "test_isolation::test_aborted_records_stay_hidden_after_the_leader_was_killed_as_in_kafka": _NODES,
    "test_isolation::test_read_committed_hides_aborted_records": _OURS,
    "test_isolation::test_read_uncommitted_delivers_aborted_records_too": _OURS,
    "test_leaders_of_up": _NODES,
    "test_limits": "it has its own cluster: see test_own_clusters",
    "test_limits::test_by_default_a_group_begins_at_the_end_that_its_partition_has_when_it_is_first_initialised": _OURS,
    "test_limits::test_the_limit_of_sessions_and_the_end_of_their_connections": (
        "each of its members has a gRPC stream of its own; test_share_schedules has the ends of Kafka's connections"
    ),
    "test_membership::test_size_limit_and_a_killed_group_coordinator": _NODES,
    "test_partial_failures::test_each_partition_of_a_fetch_has_its_own_answer": _NODES,
    "test_quotas": "a client's name is a part of gRPC's headers; test_connections has throttled clients of Kafka's",
    "test_reasons": _OURS,
    "test_renewals": _OURS,
    "test_several_consumers": _OURS,
    "test_several_leaders": _NODES,
    "test_share_sessions::test_the_same_member_and_epoch_over_another_connection_needs_the_sessions_id": _SESSION_ID,
    "test_share_sessions::test_when_the_connection_ends_the_records_go_to_others": (
        "it ends a stream of gRPC; test_share_schedules ends connections of Kafka's"
    ),
    "test_share_state": _BETWEEN_NODES,
    "test_state_faults": "it has its own cluster: see test_own_state",
    "test_state_faults::test_a_pending_accept_that_fails_after_the_lock_expired_at_the_limit_archives": _IN_ORDER,
    "test_state_rpcs": _BETWEEN_NODES,
    "test_transactions_over_leaders": _OURS,
    "test_unset_fields": "fields that are not set; Kafka's requests have all their fields",
}


def name_of(module: ModuleType | None) -> str:
    """Return a module's name without its package."""
    return module.__name__.rpartition(".")[2] if module is not None else ""


def scenarios_of(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a module's own tests by their names in LEFT_OUT."""
    for name, test in vars(module).items():
        if name.startswith("test_") and inspect.isfunction(test) and test.__module__ == module.__name__:
            yield f"{name_of(module)}::{name}", test


def again(*modules: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the tests of these modules that run again, under names that differ from each other's."""
    found = {}
    for module in modules:
        for name, test in scenarios_of(module):
            if name not in LEFT_OUT:
                found[f"{test.__name__}__{name_of(module).removeprefix('test_')}"] = test
    return found
