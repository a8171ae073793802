"""The meaning of each column of the tables, in short sentences for `--help` and docs/reference/columns.md (CT-84)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Final

Columns = Mapping[str, str]

_WIDTH: Final = 78
_TERM: Final = 18

GROUP_OFFSETS: Final[Columns] = {
    "START-OFFSET": "The group has finished every record before it; - when it has not started on the partition.",
    "LAG": "Records from START-OFFSET to the end that are not finished yet, acquired ones included; - when not known.",
    "ARCHIVED": "Records that are not delivered again though no consumer accepted them: rejected, or delivered too "
    "often (share.delivery.count.limit). Counted since the group began, or its offset was reset.",
    "IN-FLIGHT": "With --verbose: records that members hold, those included whose acknowledgement is being written; - "
    "when not known.",
    "WAITING": "With --verbose: records that can be delivered, up to the end of the log; - when not known. While no "
    "member has the partition it is the lag without DELAYED, the dead letters that its leader knows of, and what has "
    "nothing for the group: markers of transactions, and with share.isolation.level=read_committed what was aborted or "
    "is not committed yet.",
    "DELAYED": "With --verbose: records that wait until their delay ends, after a release or by the group's back-off; "
    "`groups explain` says for how much longer. - when not known.",
    "DEAD-LETTERS": "With --verbose: records that wait until their dead letter is written; `groups explain` and the "
    "leader's log say why. - when not known.",
    "OLDEST": "With --verbose: how long ago the oldest unfinished record was written; - if there is none, or if "
    "not known.",
    "LEADER-EPOCH": "With --verbose: the epoch of the partition's leader that wrote the group's state; - before that.",
}
GROUP_LIST: Final[Columns] = {
    "STATE": "Stable with members, Empty without, Dead while it is deleted, Unknown while it is in quarantine.",
    "MEMBERS": "How many members it has; ? when not known.",
    "TOPICS": "How many topics it has started on; ? when no leader knows one.",
    "LAG": "Records of these topics that are not finished yet, acquired ones included. ? is unknown; ≥ marks a sum "
    "from which some partitions are missing.",
    "OLDEST": "How long ago the oldest of them was written; - if there is none, ? when not known.",
}
GROUP_MEMBERS: Final[Columns] = {
    "CONSUMER-ID": "The member's id, which the consumer generates.",
    "HOST, CLIENT-ID": "The host that it connects from, and its client.id.",
    "#PARTITIONS": "How many partitions are assigned to it; several members may have the same partition.",
    "ASSIGNMENT": "These partitions, topic:number,number;topic:number.",
    "MEMBER-EPOCH": "With --verbose: which assignment it has; it grows with every change.",
}
GROUP_STATE: Final[Columns] = {
    "COORDINATOR (ID)": "The node that keeps the group, and its id.",
    "STATE": "Stable: it has members. Empty: it has none, but keeps its offsets. Dead: it is gone.",
    "#MEMBERS": "How many consumers are in it.",
    "GROUP-EPOCH": "With --verbose: the version of its members and topics.",
    "ASSIGNMENT-EPOCH": "With --verbose: the version that the assignment was computed for.",
}
RESET_OFFSETS: Final[Columns] = {
    "NEW-OFFSET": "Where the group continues, or with --dry-run would. Records from there on come again.",
}
DELETED_OFFSETS: Final[Columns] = {
    "STATUS": "Successful: the group has forgotten the topic. Error: it has not, and why.",
}
TOPICS: Final[Columns] = {
    "TOPIC-ID": "The topic's id. A topic that is deleted and created again gets another one.",
    "PARTITIONS": "How many partitions it has; a row for each follows.",
    "RECORDS": "Records that are still in the log, consumed or not; + when a part of the topic is not known, - when "
    "nothing is.",
    "BYTES": "What they take as they were sent, which is less than the store needs for them; ~ for an estimate, which "
    "the next call makes better, + and - as above.",
    "OLDEST": "When the oldest of them was stored, UTC, and how long ago; - if there is none, or if not known.",
    "RETENTION": "After what time, or above which bytes in a partition, the oldest are deleted; consumed: also when "
    "every share group has finished them.",
    "PARTITION": "The partition's number, from 0.",
    "LEADER": "The id of the node that leads the partition; - while none does.",
    "LEADER-EPOCH": "A number that grows with each new leader, in steps of any size; - while it has none.",
    "STORE": "A node of the store that holds the logs, the fullest first; (all): together.",
    "USED, LIMIT, LEFT": "Its memory, of all topics, groups and states, and the limit (maxmemory) at which it refuses "
    "writes.",
}
WAITING: Final[Columns] = {
    "TOPIC": "- for a group for which no leader knows a topic: its figures are ?.",
    "MEMBERS, LAG, OLDEST": "As in groups list, of this topic.",
    "ARRIVING/s": "Records written per second, in the leaders' last window; ? before the first one.",
    "FINISHING/s": "Records accepted, rejected or given up per second, in the same window.",
    "DRAINED-IN": "When the lag is gone if both stay as they are; - if it keeps up. "
    "never at this rate: no more are finished than arrive.",
    "IN-FLIGHT": "Records that members hold.",
    "DELAYED": "Records that wait until their delay ends.",
    "GIVEN-UP": "Records rejected, or archived at the delivery limit, since the leaders count; their dead letters are "
    "in `dlq list`.",
    "UNWRITTEN": "Those of them whose dead letter is not written yet.",
    "WHY": "Why the group is behind. held: one member has held a record for a minute or longer, and nothing else is "
    "left or was finished since. members fetch, but get no record: groups explain says why.",
}
DELETED_RECORDS: Final[Columns] = {
    "PARTITION": "The partition's number.",
    "LOG-START-OFFSET": "The first offset that the partition still has; the next record's when it has none.",
}
LETTERS: Final[Columns] = {
    "PARTITION, OFFSET": "Where the letter is in the DLQ topic.",
    "STORED": "When the letter was written, UTC. A copy keeps the timestamp of its record; `dlq show` has both.",
    "GROUP": "The group that could not process the record.",
    "ORIGIN": "The record, topic:partition:offset.",
    "DELIVERIES": "How often the record had been delivered to the group.",
    "REDRIVES": "How often it had been redriven before it failed again and this letter was written; - for a letter "
    "without a copy, which does not contain it.",
    "FLAGS": "sent-back: its record was redriven since; `dlq show` says when. headers-only: the letter holds "
    "no copy. duplicate: an earlier letter has the same origin and group. garbled: a "
    "header of the letter cannot be read; it cannot be redriven.",
    "CAUSE": "How it ended: rejected by a consumer, or delivered too often.",
    "REASON": "Why its member last gave it up, the first line of what it said; `dlq show` has all of it. - when it "
    "said nothing: a lock that ran out, a client that gives no reasons.",
}
LETTER_SUMMARY: Final[Columns] = {
    "ORIGIN": "The topic of the records.",
    "LETTERS": "How many letters, duplicates included.",
    "SENT-BACK": "How many of them were sent back with `dlq redrive` or in the console, duplicates included; 18+ when "
    "there may be more, - when it is not known.",
    "DUPLICATES": "How many of them have the same origin and group as an earlier one.",
    "FIRST, LAST": "When the first and the last of them were written, UTC.",
    "CAUSE, REASON": "As in the list. Letters whose reasons begin with the same line are counted together.",
}
REDRIVEN: Final[Columns] = {
    "GROUP, ORIGIN": "The group of the letters, and the topic that their records came from and go back to.",
    "REDRIVEN": "Letters whose fresh record is confirmed; with --dry-run WOULD-REDRIVE.",
    "BEFORE": "Letters whose fresh record an earlier run has made; --again redrives them once more.",
    "DUPLICATES": "Letters with the origin and group of another one of this run; one fresh record replaces them all.",
    "FAILED": "Letters that were not redriven; standard error says why.",
}
PURGED: Final[Columns] = {
    "LETTERS": "How many letters are deleted, or would be.",
    "FIRST, LAST": "When the first and the last of them were written, UTC.",
}
TRANSACTIONS: Final[Columns] = {
    "TRANSACTIONAL-ID": "The transactional.id of the producer.",
    "COORDINATOR": "The id of the node that answered; any node may be asked, and any may end the transaction.",
    "PRODUCER-ID": "The producer's id, which the cluster gave it; - when the record cannot be read.",
    "STATE": "Ongoing: open. PrepareCommit, PrepareAbort: decided, and its markers are being written. CompleteCommit, "
    "CompleteAbort: how the last one ended. Empty: a producer has started since. Unreadable: the record is damaged.",
    "OPEN-FOR": "How long ago the transaction began; - when none is open.",
}
TRANSACTION: Final[Columns] = {
    **TRANSACTIONS,
    "EPOCH": "The producer epoch in force; each transaction has one of its own.",
    "TIMEOUT": "The producer's transaction.timeout.ms: after that long the transaction is aborted.",
    "STARTED": "When the transaction began, UTC; - when none is open.",
    "PARTITIONS": "Where it may have records, topic:number,number;topic:number; - when none is open.",
}
ACLS: Final[Columns] = {
    "RESOURCE": "What the entry is about: TOPIC, GROUP, TRANSACTIONAL_ID or CLUSTER.",
    "NAME": "The name of the resource, or what it begins with; * with LITERAL: all of them.",
    "PATTERN": "LITERAL: NAME is the whole name. PREFIXED: every name that begins with NAME.",
    "PRINCIPAL": "The caller; User:* is everyone.",
    "HOST": "The address that it calls from; * is any.",
    "OPERATION": "What the caller does. READ, WRITE, DELETE and ALTER, where allowed, include DESCRIBE; ALTER_CONFIGS "
    "includes DESCRIBE_CONFIGS; ALL is every operation on the resource.",
    "PERMISSION": "ALLOW or DENY. A DENY counts before every ALLOW, whichever pattern is narrower.",
}
USERS: Final[Columns] = {
    "USER": "The name; the user is the principal User: and this name.",
    "MECHANISM": "What the password is for. A user may have one for each mechanism; each is accepted.",
    "ITERATIONS": "How often the password is hashed: what it costs to try one, for those who get hold of the hashes.",
}
FEATURES: Final[Columns] = {
    "FEATURE": "Its name in Kafka.",
    "NODE": "The id of the node that reports it.",
    "LEVEL": "The level that the node has; it was started with it.",
    "MEANING": "What the levels mean, in the node's words.",
}
#: Every table that has a legend, by the command that prints it.
TABLES: Final[Mapping[str, Columns]] = {
    "sharegroups groups list": GROUP_LIST,
    "sharegroups groups describe, or with --offsets": GROUP_OFFSETS,
    "sharegroups groups describe --members": GROUP_MEMBERS,
    "sharegroups groups describe --state": GROUP_STATE,
    "sharegroups groups reset-offsets": RESET_OFFSETS,
    "sharegroups groups delete-offsets": DELETED_OFFSETS,
    "sharegroups top": WAITING,
    "sharegroups topics describe": TOPICS,
    "sharegroups features": FEATURES,
    "sharegroups transactions list": TRANSACTIONS,
    "sharegroups transactions describe": TRANSACTION,
    "sharegroups acls list": ACLS,
    "sharegroups users list": USERS,
    "sharegroups topics delete-records": DELETED_RECORDS,
    "sharegroups dlq list": LETTERS,
    "sharegroups dlq list --summary": LETTER_SUMMARY,
    "sharegroups dlq redrive": REDRIVEN,
    "sharegroups dlq purge": PURGED,
}


def legend(*commands: str) -> str:
    """Return the columns of these tables for the end of a help text, in lines that click does not rewrap."""
    parts: list[str] = []
    for command in commands:
        lines = ["\b", f"Columns of {command.removeprefix('sharegroups ')}:"]
        for name, meaning in TABLES[command].items():
            lines += textwrap.wrap(
                meaning, _WIDTH, initial_indent=f"  {name:<{_TERM - 1}} ", subsequent_indent=" " * (_TERM + 2)
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def page() -> str:
    """Return the text of the reference page, docs/reference/columns.md."""
    parts = [
        "# Columns of the tables\n\nMade from the declarations by `make docs`; do not edit. `--help` of each command "
        "says the same. In the\nJSON of `--output json`, ARCHIVED is `archived_by_limit` and `archived_by_reject`; "
        "IN-FLIGHT, WAITING, DELAYED,\nDEAD-LETTERS and OLDEST are asked for with --verbose, and null without it.\n"
    ]
    for command, columns in TABLES.items():
        rows = [f"| `{name}` | {meaning} |" for name, meaning in columns.items()]
        parts.append("\n".join([f"## {command}", "", "| Column | Meaning |", "|---|---|", *rows, ""]))
    return "\n".join(parts)
