"""The differences that are meant, each with the rule that says so."""

from __future__ import annotations

from typing import Final

from tools.kafka_transcripts.comparing import Difference

_ANYTHING: Final = ".*"
_REFUSED: Final = r"Error.*"
_TOPICS, _CONFIGS, _GROUPS = ("topics",), ("configs",), ("share-groups",)

DIFFERENCES: Final = (
    Difference("KL-57 (b)", _TOPICS, r"topics --create .* --replica-assignment .*", r"Created topic .*", _REFUSED,
               "`--replica-assignment` is refused: the cluster places partitions by itself"),
    Difference("KL-57 (b)", _TOPICS, r"topics --create .* --replication-factor 3", _REFUSED, r"Created topic .*",
               "`--replication-factor` has no effect; a broker refuses more than it has brokers"),
    Difference("KL-43 (d)", _TOPICS, r"topics --list", r"__.*", "",
               "there are no internal topics, such as `__share_group_state`"),
    Difference("KL-60 (a)", _TOPICS, r"topics --describe .*", r"Topic: .*min\.insync\.replicas=1.*", r"(?:Topic: .*)?",
               "no `min.insync.replicas` among the configs: the store replicates"),
    Difference("KL-60 (a)", _CONFIGS, r"configs --describe --entity-type brokers --entity-default",
               r" *min\.insync\.replicas=.*", "", "no `min.insync.replicas` among the configs: the store replicates"),
    Difference("KL-60 (a)", _CONFIGS, r"configs --describe --entity-type topics .*", r" .*sensitive=.*",
               r" .*sensitive=.*", "a topic has fewer configs with `--all`, and each names its default"),
    Difference("KL-60 (a)", _CONFIGS, r"configs --alter --entity-type topics .*segment\.ms.*", r"Completed .*",
               _REFUSED, "configs of a topic that would mean nothing here, such as `segment.ms`, are refused"),
    Difference("KL-60 (a)", _CONFIGS, r"configs --describe --entity-type groups .*",
               r"(?:  (?:consumer|streams|share\.auto)\.[^\n]*\n?)*",
               r"(?:  (?:sharegroups|share\.auto|share\.assignor)\.[^\n]*\n?)*",
               "with `--all` a group has the configs of share groups, this project's own among them, and none of "
               "consumer and streams groups"),
    Difference("KL-64", _CONFIGS, r"configs .*--entity-type ips .*", r"Completed .*", _REFUSED,
               "`--entity-type ips` is refused"),
    Difference("KL-10", _CONFIGS, r"configs --describe --entity-type client-metrics", _ANYTHING,
               r"Error.*UnsupportedVersionException.*", "`--entity-type client-metrics` is not supported"),
    Difference("KL-43 (c)", _GROUPS, r"share-groups --describe .*--offsets --verbose", r"ga +tb +0 +0 .*",
               r"ga +tb +0 +\d{6,} .*", "LEADER-EPOCH is a number of seconds; a broker's begins at 0"),
    Difference("KL-73 (a)", _GROUPS, r"share-groups --describe .*", r"ga +tb +0 +30 +0", r"ga +tb +0 +31 +0",
               "START-OFFSET is that of the first record that is not finished; a broker's lags one write"),
    Difference("KL-73 (b)", _GROUPS, r"share-groups --describe --group gz --state --verbose", r"gz .* Empty +1 +1 +0",
               r"gz .* Empty +2 +1 +0", "`--reset-offsets` raises GROUP-EPOCH"),
    Difference("KL-13 (a)", ("features",), r"features describe", r"Feature: .*", "",
               "`describe` shows `share.version` and `transaction.version` alone"),
    Difference("KL-10", ("transactions",), r"transactions list", r"TransactionalId.*", r"Failed to list .*",
               "`list` is not supported; `sharegroups transactions list` is"),
)  # fmt: skip
