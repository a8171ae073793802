"""The file of `reset-offsets --from-file`: its offsets for a group, and the line number of each mistake."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kip932.ids import TopicPartition
from sharegroups.cli.groups.reset_request import plan_from_file, plan_from_lines


@pytest.mark.rule("CT-25")
@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("t,0,5\nt,1,7\n", {("t", 0): 5, ("t", 1): 7}),
        ("g,t,0,5\nother,t,0,9\n", {("t", 0): 5}),
        ("\n t , 0 , 5 \r\n\n", {("t", 0): 5}),
        ('"t",0,5', {("t", 0): 5}),
        ("other,t,0,9\n", {}),
        ("", {}),
    ],
)
def test_a_plan_has_the_lines_of_its_group(text: str, plan: dict[tuple[str, int], int]) -> None:
    found = plan_from_lines(text.splitlines(keepends=True), "g")
    assert found == {TopicPartition(*place): offset for place, offset in plan.items()}


@pytest.mark.rule("CT-25", "CT-81")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,0,5\nt,1\n", "line 2 has 2 columns; expected topic,partition,offset"),
        ("t\n", "line 1 has 1 column; expected"),
        ("g,t,0,5,6\n", "line 1 has 5 columns; expected"),
        ("g,t,0,5\n\nt,0,5\n", "line 3 has 3 columns, the lines before it 4"),
        ("topic,partition,offset\n", "line 1: the partition is 'partition'; expected a whole number"),
        ("t,0,5\nt,x,5\n", "line 2: the partition is 'x'"),
        ("t,0,five\n", "line 1: the offset is 'five'"),
        ("t,0,-1\n", "line 1: the offset is '-1'"),
        ("t,0,1.5\n", "line 1: the offset is '1.5'"),
        ("t,0,\u0665\n", "line 1: the offset is '\u0665'"),
        (f"t,0,{2**63}\n", f"line 1: the offset is '{2**63}'"),
        ("t,0," + "9" * 5000, "line 1: the offset is '999"),
        ("t,2147483648,1\n", "line 1: the partition is '2147483648'"),
        (",0,1\n", "line 1: the topic is empty"),
        (",t,0,1\n", "line 1: the group is empty"),
        ("t,0,1\nu,0,1\nt,0,2\n", "line 3: t-0 is in line 1 too"),
        ('t,0,1\n"t,0,1\n', "line 2: unexpected end of data"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="line") as refused:
        plan_from_lines(text.splitlines(keepends=True), "g")
    assert said in str(refused.value)


@pytest.mark.rule("CT-25")
def test_a_byte_order_mark_is_no_part_of_a_topic_and_another_groups_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_bytes(b"\xef\xbb\xbft,0,5\r\n")
    assert plan_from_file(file, "g") == {TopicPartition("t", 0): 5}
    file.write_text("other,t,0,5\n")
    with pytest.raises(click.ClickException, match=r"^No reset plan for group g found\."):
        plan_from_file(file, "g")
    file.write_text("t,0,a\x1bb\n")
    with pytest.raises(click.ClickException, match=r"plan\.csv: line 1: the offset is"):
        plan_from_file(file, "g")
    file.write_bytes(b"t,0,1\n\xff\n")
    with pytest.raises(click.ClickException, match="is not UTF-8 text"):
        plan_from_file(file, "g")
