"""The reference pages match the declarations and docstrings."""

import re
from pathlib import Path

import pytest

import sharegroups
from shard_runtime.rpc.table import RPCS, UNSERVED
from sharegroups import aio, config
from sharegroups.connection import wire
from tools.api_page import rpcs_of
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_reference_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), f"{path.name} is stale; run: make docs"


def test_every_setting_of_a_client_stands_once_on_its_page() -> None:
    page = (FOLDER / "client-settings.md").read_text(encoding="utf-8")
    for setting in {*config.CONSUMER, *config.PRODUCER, *config.ADMIN}:
        assert page.count(f"\n| `{setting.name}` | ") == 1


def test_every_public_name_has_its_place_on_the_page_of_the_api() -> None:
    page = (FOLDER / "api.md").read_text(encoding="utf-8")
    for name in sharegroups.__all__:
        heading = "## sharegroups.aio" if name == "aio" else f"## {name}"
        assert (f"\n{heading}\n" in page) != (f"\n| `{name}` | " in page), name
    for name in aio.__all__:
        assert f"\n### {name}\n" in page


def test_the_page_of_the_api_shows_how_to_call_and_what_is_raised() -> None:
    page = (FOLDER / "api.md").read_text(encoding="utf-8")
    assert "\n- `poll(timeout: float | None = None, *, max_records: int | None = None) -> Messages`: " in page
    assert "\n- `await poll(timeout: float | None = None, *, max_records: int | None = None) -> Messages`" in page
    assert "\n- `await send(topic: str, value: Any = None, " in page
    assert "Raises BufferFullError, MessageTooLargeError" in page
    assert " at 0x" not in page  # without object addresses, so that the page is the same on every machine


@pytest.mark.rule("CL-88")
def test_the_page_of_the_api_marks_the_methods_that_need_what_no_service_has() -> None:
    page = (FOLDER / "api.md").read_text(encoding="utf-8")
    marked = [line for line in page.splitlines() if "**Not served by this version**" in line]
    assert marked == [], "every method of this version's clients is served"
    for path in UNSERVED:
        assert f"\n- `{path.rpartition('.')[2]}`: " in page


def test_the_page_of_metrics_has_each_kind_of_process_and_names_no_rules() -> None:
    page = (FOLDER / "metrics.md").read_text(encoding="utf-8")
    for name in ("sharegroups_worker_jobs_total", "sharegroups_ingest_share_group_lag", "sharegroups_shards"):
        assert f"\n| `{name}` | " in page
    assert re.findall(r"\b[A-Z]{2}-\d+", page) == []


def test_every_rpc_is_on_the_page_of_the_protocol_with_where_it_is_served() -> None:
    page = (FOLDER / "protocol.md").read_text(encoding="utf-8")
    for row in RPCS.values():
        assert page.count(f"\n| `{row.name}` | ") == 1, row.path


def test_every_method_of_the_admin_client_is_known_to_need_its_calls() -> None:
    assert rpcs_of(sharegroups.Admin, "delete_share_groups") == {wire.DELETE_GROUPS.path}
    assert rpcs_of(sharegroups.Admin, "list_share_group_offsets") == {wire.DESCRIBE_OFFSETS.path}
    assert rpcs_of(sharegroups.Producer, "transaction") == {wire.END_TXN.path}
    calls = [name for name in vars(sharegroups.Admin) if name[0] != "_" and name != "close"]
    assert [name for name in calls if not rpcs_of(sharegroups.Admin, name)] == []
