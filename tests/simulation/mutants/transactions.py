"""Planted bugs in transactions, from their stored record to the reader: the simulator finds four, other tests the rest.

If a transaction's record loses partitions, the transaction is not committed in part: EndTxn refuses the commit
(CM-154), and leaders ask about transactions that are open in their logs (CM-155). So tests find that bug.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_CORE: Final = "transaction_coordinator.core.transaction"

TRANSACTIONS: Final = (
    Mutant(
        "joins-forget-the-others",
        "a partition that joins a transaction takes the place of those that joined before: they get no marker of it",
        ("CM-44", "INV-19", "CM-153"),
        (Edit(_CORE, "partitions=(*known.partitions, *more)", "partitions=more"),),
        ("tests/unit/transaction_coordinator/test_coordinator.py",),
    ),
    Mutant(
        "takeover-forgets-transactions",
        "a new leader does not search for transactions in the entries after the last snapshot",
        ("INV-2", "CM-150"),
        (
            Edit(
                "partition_leader.topic_log.load",
                "                state.producers.accept(batch)\n"
                "            if batch.is_transactional:\n"
                "                state.transactions.note(batch)\n",
                "                state.producers.accept(batch)\n",
            ),
        ),
    ),
    Mutant(
        "time-out-unheard",
        "no node aborts a transaction that its producer left open",
        ("INV-19", "CM-156"),
        (
            Edit(
                "transaction_coordinator.coordinator",
                "found.identity == identity and timed_out(found, now_ms)",
                "found.identity != identity and timed_out(found, now_ms)",
            ),
        ),
    ),
    Mutant(
        "aborted-is-committed-too",
        "who commits a transaction that was aborted meanwhile learns that it is committed",
        ("CM-44", "CM-154"),
        (
            Edit(_CORE, "        if past.committed is not commit:\n", "        if False and past.committed:\n"),
            Edit(_CORE, "        if known.commits is not commit:\n", "        if False and known.commits:\n"),
        ),
    ),
    Mutant(
        "reads-past-the-stable-offset",
        "groups that read committed records read on after an open transaction",
        ("INV-2", "PL-802"),
        (
            Edit(
                "partition_leader.topic_log.reader",
                "        stable = read.last_stable\n",
                "        stable = read.high_watermark\n",
            ),
        ),
    ),
    Mutant(
        "aborted-batches-sent-again",
        "a batch in flight when its transaction is aborted is sent again in the next one",
        ("CM-44", "CL-101"),
        (
            Edit(
                "sharegroups.producing.core.open_transaction",
                "abandoned = group in self._abandoned",
                "abandoned = False",
            ),
        ),
        ("tests/unit/sharegroups/producing/test_transactions.py",),
    ),
    Mutant(
        "snapshot-without-aborted",
        "the snapshot of a log leaves the aborted transactions out",
        ("CM-150",),
        (
            Edit(
                "partition_leader.topic_log.codec",
                "    for aborted in transactions.aborted:\n",
                "    for aborted in transactions.aborted[:0]:\n",
            ),
        ),
        ("tests/unit/partition_leader/topic_log/test_transactions.py",),
    ),
)
