"""`sharegroups dlq redrive`: its whole output, the dead letters it takes, and refusals."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kip932.ids import RESOURCE_TOPIC, topic_id_text
from sharegroups.cli.main import main
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.letters import bare, copy_of, store
from tests.unit.sharegroups.cli.conftest import sharegroups
from tests.unit.sharegroups.cli.transcript import check

from .conftest import DLQ
from .sent import produced


@pytest.mark.rule("CT-120", "CT-126", "CT-127")
def test_the_transcript(letters: FakeCluster) -> None:
    store(letters, "orders", *((None, b"job %d" % number, (), 1) for number in range(5)))
    check(
        "dlq-redrive",
        [
            f"dlq redrive --topic {DLQ} --all --purge --dry-run",
            f"dlq redrive --topic {DLQ} --all --dry-run --output json",
            f"dlq redrive --topic {DLQ} --cause rejected",
            f"dlq redrive --topic {DLQ} --all --purge",
            f"dlq redrive --topic {DLQ} --all --output json",
            "dlq redrive --group h --all",
            "dlq redrive --group g --cause threshld",
            f"dlq redrive --topic {DLQ} --origin order --cause x",
            f"dlq redrive --topic {DLQ}:1 --offset 2",
            f"dlq redrive --topic {DLQ}:1 --offset 0-1",
            "dlq redrive --topic orders --all",
            f"dlq redrive --topic {DLQ}",
            f"dlq redrive --topic {DLQ} --offset 3",
        ],
    )


def sent(fake: FakeCluster, *words: str, topic: str = DLQ) -> list[tuple[int, int]]:
    """Redrive; return the places of the dead letters for which fresh records were produced."""
    ends = {number: fake.log("orders", number).end for number in (0, 1)}
    result = sharegroups("dlq", "redrive", "--topic", topic, *words)
    assert result.exit_code == 0, result.output
    return sorted(one.place for number in (0, 1) for one in produced(fake, partition=number, since=ends[number]))


@pytest.mark.rule("CT-122", "CT-126")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--all"], [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]),
        (["--all", "--group", "h"], [(0, 2)]),
        (["--origin", "orders:1"], [(1, 0)]),
        (["--cause", "client"], [(0, 1), (1, 0)]),
        (["--cause", "client", "--until", "1970-01-01T00:00:01"], []),
        (["--until", "1970-01-01T00:00:02"], [(0, 0), (0, 1), (0, 2)]),
        (["--all", "--limit", "2"], [(0, 0), (0, 1)]),
    ],
)
def test_letters_are_chosen(queue: FakeCluster, words: list[str], found: list[tuple[int, int]]) -> None:
    store(queue, DLQ, copy_of(0), copy_of(1, cause=b"by client"), copy_of(2, group="h"), at_ms=1_000)
    store(queue, DLQ, copy_of(3), at_ms=2_000)
    store(queue, DLQ, copy_of(0, partition=1, cause=b"By Client"), partition=1, at_ms=2_000)
    assert sent(queue, *words) == found


@pytest.mark.rule("CT-126")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--offset", "2"], [2]),
        (["--offset", "1-3"], [1, 2, 3]),
        (["--offset", "0", "--offset", "4-9", "--offset", "4"], [0, 4]),
        (["--offset", "1-3", "--limit", "1"], [1]),
        (["--offset", "3", "--group", "g"], [3]),
    ],
)
def test_letters_are_chosen_by_offset(queue: FakeCluster, words: list[str], found: list[int]) -> None:
    for number in range(5):
        store(queue, DLQ, copy_of(number))
    assert sent(queue, *words, topic=f"{DLQ}:0") == [(0, offset) for offset in found]


@pytest.mark.rule("CT-126")
def test_offsets_with_purge_are_read_from_the_beginning_so_that_nothing_else_is_deleted(queue: FakeCluster) -> None:
    for number in range(4):
        store(queue, DLQ, copy_of(number))
    assert sent(queue, "--offset", "2", "--purge", topic=f"{DLQ}:0") == [(0, 2)]
    assert queue.log(DLQ).first == 0
    assert sent(queue, "--offset", "0-1", "--purge", topic=f"{DLQ}:0") == [(0, 0), (0, 1)]
    assert queue.log(DLQ).first == 2


@pytest.mark.rule("CT-126")
@pytest.mark.parametrize("text", ["1", "1-2", "5-9", "0-0"])
def test_an_offset_without_a_letter_is_an_error(queue: FakeCluster, text: str) -> None:
    store(queue, DLQ, (b"k", b"v", (), 5))
    result = sharegroups("dlq", "redrive", "--topic", f"{DLQ}:0", "--offset", text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{DLQ}-0 has no dead letter at offset" in result.stderr
    assert produced(queue) == []


OLD, NEW = "A" * 22, "B" * 22


@pytest.mark.rule("CT-121", "CT-126", "CT-127")
@pytest.mark.parametrize("ids", [("", ""), (OLD, NEW)])
def test_letters_of_a_topic_and_of_its_successor_of_the_same_name_are_all_redriven(
    queue: FakeCluster, ids: tuple[str, str]
) -> None:
    old = [copy_of(number, value=b"old %d" % number, topic_id=ids[0]) for number in range(5)]
    new = [copy_of(number, value=b"new %d" % number, topic_id=ids[1]) for number in range(5)]
    store(queue, DLQ, *old)
    assert len(sent(queue, "--all")) == 5
    store(queue, DLQ, *new, *new[:2])
    assert sent(queue, "--all", "--purge") == [(0, offset) for offset in range(5, 10)]
    assert sorted(one.value or b"" for one in produced(queue)) == sorted(
        b"%s %d" % (word, n) for word in (b"old", b"new") for n in range(5)
    )
    assert queue.log(DLQ).first == 12
    store(queue, DLQ, *old, *new)
    assert sent(queue, "--all", "--purge") == [], "all of them were redriven before"


@pytest.mark.rule("CT-121")
def test_letters_alike_in_all_but_their_topic_id_are_different_letters(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0, topic_id=OLD), copy_of(0, topic_id=NEW), copy_of(0, topic_id=NEW))
    assert sent(queue, "--all", "--purge") == [(0, 0), (0, 1)]


@pytest.mark.rule("CT-126", "CT-127")
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_record_that_claims_to_be_a_letters_fresh_one_has_no_letter_purged(queue: FakeCluster, is_bare: bool) -> None:
    topic_id = topic_id_text(queue.topics["orders"][0])
    store(queue, "orders", (b"k", b"v", (), 5_000))
    store(queue, DLQ, (bare if is_bare else copy_of)(0, topic_id=topic_id))
    said = {"topic.id": topic_id_text(queue.topics[DLQ][0]), "group": "g", "origin.offset": "0", "count": "1"}
    said["origin.topic.id"] = topic_id
    store(
        queue,
        "orders",
        (b"k", b"junk", [(f"__dlq.redrive.{name}", text.encode()) for name, text in said.items()], 5_000),
    )
    assert sent(queue, "--all", "--purge") == [(0, 0)]
    assert produced(queue)[-1].value == b"v"


@pytest.mark.rule("CT-127")
def test_a_letter_whose_origin_is_gone_stays_though_a_record_claims_to_be_its_fresh_one(queue: FakeCluster) -> None:
    store(queue, "orders", (b"k", b"v", (), 5_000))
    store(queue, DLQ, bare(0, topic_id=topic_id_text(queue.topics["orders"][0])))
    assert sent(queue, "--all") == [(0, 0)]
    queue.log("orders").delete_before(1)
    assert sent(queue, "--all", "--purge") == []
    assert queue.log(DLQ).first == 0


@pytest.mark.rule("CT-125", "CT-127")
def test_a_letter_without_a_copy_is_not_redriven_from_a_topic_that_was_created_again(queue: FakeCluster) -> None:
    store(queue, "orders", (b"k", b"another job", (), 5_000))
    store(queue, DLQ, bare(0, topic_id=OLD))
    result = sharegroups("dlq", "redrive", "--topic", DLQ, "--all", "--purge")
    assert (result.exit_code, queue.log(DLQ).first) == (1, 0)
    assert f"orders was deleted and created again: the letter is about the topic with id {OLD}" in result.stderr


@pytest.mark.rule("CT-120")
def test_a_topic_that_is_no_queue_is_refused_unless_it_is_forced(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0))
    del queue.configs[RESOURCE_TOPIC, DLQ]
    refused = sharegroups("dlq", "redrive", "--topic", DLQ, "--all")
    assert (refused.exit_code, refused.stdout, produced(queue)) == (1, "", [])
    assert "is not true. Nothing was done." in refused.stderr
    assert f"sharegroups topics alter {DLQ} --config errors.deadletterqueue.group.enable=true" in refused.stderr
    assert sent(queue, "--all", "--force") == [(0, 0)]


@pytest.mark.rule("CT-127")
def test_a_dry_run_sends_and_deletes_nothing_and_says_what_cannot_go(queue: FakeCluster) -> None:
    store(queue, DLQ, copy_of(0), copy_of(0), bare(9), copy_of(1))
    result = sharegroups("dlq", "redrive", "--topic", DLQ, "--all", "--purge", "--dry-run")
    assert result.exit_code == 1
    assert "Error: dlq.orders-0 offset 2: not redriven: orders-0 does not have offset 9 any more" in result.stderr
    assert result.stdout.splitlines()[2].split() == ["g", "orders", "2", "0", "1", "1"]
    assert "Would delete dlq.orders-0 before offset 2.\n" in result.stdout
    assert (produced(queue), queue.log(DLQ).first) == ([], 0)


@pytest.mark.rule("CT-126")
def test_settings_of_the_producer_and_of_neither_in_the_file(queue: FakeCluster, tmp_path: object) -> None:
    store(queue, DLQ, copy_of(0))
    file = f"{tmp_path}/client.properties"
    with open(file, "w", encoding="utf-8") as out:
        out.write("compression.type=gzip\nclient.id=me\n")
    assert sent(queue, "--all", "--command-config", file) == [(0, 0)]
    with open(file, "a", encoding="utf-8") as out:
        out.write("compresion.type=gzip\n")
    refused = sharegroups("dlq", "redrive", "--topic", DLQ, "--all", "--again", "--command-config", file)
    assert refused.exit_code == 1
    assert "'compresion.type'" in refused.stderr or "compresion.type" in refused.stderr
    assert len(produced(queue)) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--all"], "which letters?"),
        (["--topic", "d"], "which letters?"),
        (["--group", "g"], "which letters?"),
        (["--topic", "d", "--offset", "1"], "--offset needs --topic with the partition"),
        (["--group", "g", "--offset", "1"], "--offset needs --topic with the partition"),
        (["--topic", "d:0", "--offset", "1", "--all"], "--offset names the letters"),
        (["--topic", "d:0", "--offset", "1", "--cause", "x"], "--offset names the letters"),
        (["--topic", "d", "--all", "--origin", "t"], "--all means every letter"),
        (["--topic", "d:0", "--offset", "x"], "expected an offset from 0 on"),
        (["--topic", "d:0", "--offset", "3-2"], "expected an offset from 0 on"),
        (["--topic", "d:0", "--offset", "99999999999999999999"], "expected an offset from 0 on"),
        (["--topic", "d:0", "--offset", "9223372036854775807"], "expected an offset from 0 on"),
        (["--topic", "d:0", *["--offset", "1"] * 1_001], "at most 1000 are taken"),
    ],
)
def test_a_line_must_say_which_letters_are_meant_in_one_way(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["dlq", "redrive", *words])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
