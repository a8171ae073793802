"""Dead letters that wait to be written: the product's `WaitingLetters` and a model with one entry per letter (PL-907,
PL-912, PL-917 …).

The dead-letter queue is up, unreachable, refusing writes or switched off by turns, and the group's policy is retry or
drop. As in the product, letters that were written or given up are reported to the share-partition.
"""

from __future__ import annotations

from dataclasses import dataclass

from partition_leader.dead_letters.core.waiting import DROP_ATTEMPTS, Stretch, WaitingLetters, by_letter, pause_ms
from partition_leader.share_partition.core.effects import DeadLetter

ROUND_MAX = 4
Ended = dict[int, list[tuple[int, int]]]


@dataclass(slots=True)
class Letter:
    """One letter: the number under which it was sent, when it is due, its reason, how often it failed on its own."""

    number: int
    due: int
    reason: str
    attempts: int = 0
    alone: bool = False


class Post:
    """The letters of one share-partition object. `drops`: policy `drop`."""

    def __init__(self) -> None:
        self.product = WaitingLetters()
        self.model: dict[int, Letter] = {}
        self.attempts = 0
        self.drops = False
        self.rounds = 0

    def add(self, letter: DeadLetter, now: int) -> None:
        """Add the letters that the share-partition sends."""
        self.product.add(letter, now)
        due = now
        if self.attempts and self.model:
            due = max(now, min(one.due for one in self.model.values()))
        for first, last, _ in letter.ranges:
            for offset in range(first, last + 1):
                assert offset not in self.model, f"a second letter for offset {offset}"
                reason = next((why for low, high, _, why in letter.failures if low <= offset <= high), "")
                self.model[offset] = Letter(letter.dead_letter_id, due, reason)
        self.check()

    def round(self, now: int, queue: str, jitter: float, left: int) -> Ended:
        """Play one round, with a queue that is up, down, refusing or off. `left`: how many of the round's letters do
        not fit. Return the letters that are done, by number."""
        out = self.product.take(now, ROUND_MAX)
        due = self._due(now)
        assert [at for one in out for at in range(one.first, one.last + 1)] == due, f"a round of {out}, due {due}"
        said = [(at, one.reason) for one in out for at in range(one.first, one.last + 1)]
        assert said == [(at, self.model[at].reason) for at in due], f"reasons of a round: {said}"
        if not out:
            return {}
        self.rounds += 1
        if queue == "off":
            return self._give_up_all(out)
        if queue == "down":
            return self._unreachable(out, now, jitter)
        if queue == "refusing":
            return self._refused(out, now, jitter)
        return self._written(out, left)

    def retry(self, now: int) -> None:
        """Make all letters due, since topics or configs changed."""
        self.product.hurry(now)
        for letter in self.model.values():
            letter.due = min(letter.due, now)
        self.check()

    def leave(self) -> Ended:
        """Retire the share-partition: letters that failed are left to the next leader (PL-921)."""
        failed = {at for at, letter in self.model.items() if self.attempts or letter.attempts}
        return self._over(self.product.take_failed(), failed)

    def check(self) -> None:
        """Check that both have the same letters and the same time of the next round."""
        said = {at for first, last in self.product.spans() for at in range(first, last + 1)}
        assert said == self.model.keys(), f"letters: product {sorted(said)}, model {sorted(self.model)}"
        due = min((letter.due for letter in self.model.values()), default=None)
        assert self.product.due_ms == due, f"next round: product {self.product.due_ms}, model {due}"
        assert self.product.count == len(self.model)

    def _due(self, now: int) -> list[int]:
        room, taken = ROUND_MAX, list[int]()
        for offset in sorted(self.model):
            letter = self.model[offset]
            if letter.due > now or not room or (letter.alone and taken):
                continue
            room = 0 if letter.alone else room - 1
            taken.append(offset)
        return taken

    def _over(self, stretches: list[Stretch], wanted: set[int]) -> Ended:
        ended = by_letter(stretches)
        found = {at for spans in ended.values() for first, last in spans for at in range(first, last + 1)}
        assert found == wanted, f"letters that are over: product {sorted(found)}, model {sorted(wanted)}"
        for number, spans in ended.items():
            for first, last in spans:
                assert {self.model.pop(at).number for at in range(first, last + 1)} == {number}
        self.check()
        return ended

    def _give_up_all(self, out: list[Stretch]) -> Ended:
        self.product.end(())
        return self._over([*out, *self.product.take_all()], set(self.model))

    def _unreachable(self, out: list[Stretch], now: int, jitter: float) -> Ended:
        self.attempts += 1
        self.product.attempts += 1
        if self.drops and self.attempts >= DROP_ATTEMPTS:
            return self._give_up_all(out)
        due = now + self._pause(self.attempts, jitter)
        self.product.end(out)
        self.product.put_off(due)
        for letter in self.model.values():
            letter.due = max(letter.due, due)
        self.check()
        return {}

    def _refused(self, out: list[Stretch], now: int, jitter: float) -> Ended:
        offsets = [at for one in out for at in range(one.first, one.last + 1)]
        if len(offsets) > 1:
            self.product.end([single for one in out for single in one.singles()])
            for at in offsets:
                self.model[at].alone = True
            self.check()
            return {}
        if self.drops:
            self.product.end(())
            return self._over(out, set(offsets))
        letter = self.model[offsets[0]]
        letter.attempts += 1
        letter.due = now + self._pause(letter.attempts, jitter)
        self.product.end([one.failed(letter.due) for one in out])
        self.check()
        return {}

    def _written(self, out: list[Stretch], left: int) -> Ended:
        self.attempts = self.product.attempts = 0
        offsets = [at for one in out for at in range(one.first, one.last + 1)]
        done = set(offsets[: max(1, len(offsets) - left)])
        kept = [one.cut(at, at) for one in out for at in range(one.first, one.last + 1) if at not in done]
        self.product.end(kept)
        return self._over([one.cut(at, at) for one in out for at in range(one.first, one.last + 1) if at in done], done)

    def _pause(self, attempts: int, jitter: float) -> int:
        wanted = int(min(30_000, 1_000 * 2 ** (attempts - 1)) * (0.8 + 0.4 * jitter))
        said = pause_ms(attempts, jitter)
        assert said == wanted, f"pause after {attempts} failures: product {said}, model {wanted}"
        return said
