"""Planted bugs in wiring, thresholds, loading and timing: they appear without a special schedule, and tests of the
suite find them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

WIRING: Final = (
    Mutant(
        "letters-left-are-forgotten",
        "dead letters that a share-partition leaves behind are neither reported nor sent before a member joins",
        ("PL-922",),
        (Edit("partition_leader.dead_letters.post", "        self._note_left(box, stretches)\n", ""),),
        ("tests/unit/partition_leader/dead_letters/test_left_behind.py",),
    ),
    Mutant(
        "letters-keep-their-back-off",
        "a re-created topic is checked once, and then only after the pause that had grown meanwhile",
        ("PL-912",),
        (
            Edit(
                "partition_leader.dead_letters.core.waiting",
                "        self.pace = 0\n        self._waiting",
                "        self._waiting",
            ),
        ),
        ("tests/unit/partition_leader/dead_letters/test_post.py",),
    ),
    Mutant(
        "refused-batch-believed",
        "a produce that is refused as a whole leaves its first batch known: a retry of it is confirmed and lost",
        ("CM-43",),
        (
            Edit(
                "partition_leader.topic_log.operations",
                "            draft.roll_back(accepted)\n            del draft.batches[batches:]",
                "            del draft.batches[batches:]",
            ),
        ),
        ("tests/unit/partition_leader/topic_log/test_appending.py",),
    ),
    Mutant(
        "sweep-keeps-the-dead",
        "the sweep of many locks drops the live ones, which never run out",
        ("PL-303",),
        (Edit("partition_leader.share_partition.core.locks", "if is_live(entry)]", "if not is_live(entry)]"),),
        ("tests/unit/partition_leader/share_partition/core/test_locks.py",),
    ),
    Mutant(
        "one-page-of-control",
        "a load reads one page of the control log: after 20 idle take-overs the log starts at 0 again",
        ("CM-45", "CM-18"),
        (Edit("partition_leader.topic_log.load", "if len(page) < _CONTROL_PAGE:", "if len(page) <= _CONTROL_PAGE:"),),
        ("tests/unit/partition_leader/topic_log/test_takeover.py",),
    ),
    Mutant(
        "page-counts-what-is-gone",
        "retention by size counts deleted batches of a page that the log start has cut, and deletes as many more",
        ("CM-45",),
        (
            Edit(
                "partition_leader.topic_log.core.pages",
                "return self._pages[0] if self._pages and self._pages[0].start < log_start else None",
                "return None",
            ),
        ),
        ("tests/unit/partition_leader/topic_log/test_search_and_retention.py",),
    ),
    Mutant(
        "no-retention",
        "the retention sweep does nothing",
        ("CM-45",),
        (Edit("partition_leader.role", "await self.led.retain()", "await asyncio.sleep(0)"),),
        ("tests/unit/partition_leader/test_role.py",),
    ),
    Mutant(
        "retention-swapped",
        "retention.ms and retention.bytes are handed over in the other order",
        ("CM-45",),
        (
            Edit(
                "share_node.node.views",
                "return effective.topic(name, kafka_configs.RETENTION_MS), "
                "effective.topic(name, kafka_configs.RETENTION_BYTES)",
                "return effective.topic(name, kafka_configs.RETENTION_BYTES), "
                "effective.topic(name, kafka_configs.RETENTION_MS)",
            ),
        ),
        ("tests/unit/partition_leader/test_role.py",),
    ),
    Mutant(
        "slow-store-expires",
        "a flush that took as long as a write may does not count as an interruption: a slow store expires members",
        ("GC-32a",),
        (
            Edit(
                "shard_runtime.hosting.shard_host",
                "            tenure.interrupted |= elapsed_ms >= self._options.write_timeout_ms\n",
                "",
            ),
        ),
        ("tests/unit/shard_runtime/hosting/test_shard_host.py",),
    ),
)
