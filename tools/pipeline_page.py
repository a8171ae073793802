"""Generates parts of docs/pipeline.md from declarations in the pipeline: the columns of rows, and the SQL views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from pyspark.sql.pandas.types import from_arrow_schema

from share_metrics.questions import QUESTIONS
from share_metrics.reader import Kind, schema_of
from share_metrics.reader.meanings import COMMON, OWN, RECORD_TYPES
from tools.page_parts import page_with

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "pipeline.md"
_TITLES: Final = {
    Kind.SHARE_STATE: "`share_state`: what a share coordinator writes of share-partitions",
    Kind.GROUP: "`group`: what a group coordinator writes of groups and members",
    Kind.LOG_META: "`log_meta`: the batches of topics, without their contents",
}


def pipeline_page() -> str:
    """Return docs/pipeline.md with its parts regenerated. Raises ValueError if the page lacks one."""
    return page_with(PAGE, PARTS)


def rows_part() -> str:
    """Return the columns of each kind of row: names, Spark's types, meanings."""
    parts = [
        "Every row has these columns; unless stated otherwise, null means that the record has no such field.",
        "",
    ]
    common = schema_of(Kind.SHARE_STATE)
    parts += _table(_types(common, COMMON), COMMON)
    for kind, own in OWN.items():
        types = ", ".join(f"`{name}`" for name in RECORD_TYPES[kind])
        parts += ["", f"#### {_TITLES[kind]}", "", f"Record types: {types}.", ""]
        parts += _table(_types(schema_of(kind), own), own)
    return "\n".join([*parts, ""])


def questions_part() -> str:
    """Return the question that each view answers, and its columns."""
    lines = ["| View | Question | Columns |", "|---|---|---|"]
    for one in QUESTIONS:
        columns = "<br>".join(f"`{name}`: {words}" for name, words in one.columns.items())
        lines.append(f"| `{one.view}` | {one.asks} | {columns} |")
    return "\n".join([*lines, ""])


#: The function that makes each generated part, by the part's name.
PARTS: Final[dict[str, Callable[[], str]]] = {"questions": questions_part, "rows": rows_part}


def _types(schema: object, names: Iterable[str]) -> dict[str, str]:
    """Return the type of each column as Spark's SQL writes it."""
    fields = {field.name: field.dataType.simpleString() for field in from_arrow_schema(schema)}
    return {name: fields[name] for name in names}


def _table(types: Mapping[str, str], meanings: Mapping[str, str]) -> list[str]:
    rows = [f"| `{name}` | `{types[name]}` | {words} |" for name, words in meanings.items()]
    return ["| Column | Type | Meaning |", "|---|---|---|", *rows]
