"""Planted bugs in the handling of dead letters: the simulator finds them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_POST: Final = "partition_leader.dead_letters.post"

LETTERS: Final = (
    Mutant(
        "letter-lost-as-in-kafka",
        "a dead letter that cannot be written is given up, and its record archived",
        ("INV-18",),
        (
            Edit(
                _POST,
                "        if failure.reason in GIVEN_UP or self._drops(box, failure, letters.attempts):\n",
                "        if True:\n",
            ),
        ),
    ),
    Mutant(
        "letters-not-resumed",
        "a new leader does not write the dead letters that its predecessor left",
        ("INV-18", "INV-19", "INV-1", "INV-9", "INV-17"),
        (
            Edit(
                "partition_leader.share_partition.core.partition_state",
                "stored_letters(self.window, self.settings)",
                "()",
            ),
        ),
    ),
    Mutant(
        "letters-left-count-as-written",
        "a share-partition that retires archives the records whose dead letters it leaves to its successor",
        ("INV-18",),
        (
            Edit(
                "partition_leader.share_partition.core.share_partition",
                "        self._state.dead_letters.postpone(event.dead_letter_id, event.spans)\n",
                "        self._dlq_done(events.DlqDone(event.dead_letter_id, event.spans))\n",
            ),
        ),
    ),
    Mutant(
        "letter-answer-not-read",
        "any response of another node to dead letters counts as success",
        ("INV-18",),
        (
            Edit(
                "partition_leader.dead_letters.carriers",
                "                        load.answer.set_result(answers[load.partition])\n",
                "                        load.answer.set_result(None)\n",
            ),
        ),
    ),
    Mutant(
        "letter-names-the-batch",
        "every dead letter of a range of records names the first offset of the range",
        ("INV-18",),
        (
            Edit(
                "partition_leader.dead_letters.preparing",
                "        return self._made(stretch, offset, None, hops)._replace(context=context)\n",
                "        return self._made(stretch, stretch.first, None, hops)._replace(context=context)\n",
            ),
        ),
    ),
    Mutant(
        "letter-without-headers",
        "a copy leaves out the headers of its record",
        ("INV-2", "INV-18"),
        (
            Edit(
                "partition_leader.dead_letters.letter_codec",
                "        record.headers.extend(header for header in source.record.headers if not "
                "header.key.startswith(PREFIX))\n",
                "",
            ),
        ),
    ),
    Mutant(
        "letters-hold-locks",
        "records on their way to the dead-letter queue count against the record locks",
        ("PL-915",),
        (
            Edit(
                "partition_leader.share_partition.core.dead_letters",
                "        return settings.max_record_locks - (window.next_offset - self._front - "
                "(self.waiting - self._passed))\n",
                "        return settings.max_record_locks - window.in_flight\n",
            ),
        ),
        tests=("tests/unit/partition_leader/share_partition/core/test_dead_letters.py",),
    ),
)
