"""The page that sets where an empty group continues: first what would be set, then exactly that (CT-169)."""

from __future__ import annotations

import csv
import io
from typing import Final

from kip932.ids import TopicPartition
from sharegroups.admin import Admin
from sharegroups.cli.dlq.times import time_ms
from sharegroups.cli.groups.log_starts import warn_of_deleted_records
from sharegroups.cli.groups.reset_plan import Plan, plan_of, require_resettable
from sharegroups.cli.groups.reset_request import Request, plan_from_lines, topics_of
from sharegroups.cli.groups.waiting_letters import BY_OFFSET, warn_of_waiting_letters
from sharegroups.console.dead_letters import Audited
from sharegroups.console.groups import described
from sharegroups.console.visit import Page, RefusedError, Visit, parts_of_commands

TARGETS: Final = {
    "to-earliest": "the beginning of the log",
    "to-latest": "the end of the log",
    "to-current": "where the group is",
    "to-offset": "an offset",
    "to-datetime": "a time",
}
#: How many partitions one reset sets: what was shown comes back in the form that confirms it.
PARTITIONS_MAX: Final = 5_000


def form_page(visit: Visit) -> Page:
    """The form."""
    group = described(visit.admin, visit.required("group"))
    return Page("reset.html", {"group": group, "targets": TARGETS, "plan": None})


def plan_page(visit: Visit) -> Page:
    """What would be set."""
    group = described(visit.admin, visit.required("group"))
    request = _request(visit)
    with parts_of_commands() as notes:
        require_resettable(visit.admin, request)
        plan = plan_of(visit.admin, request)
        warn_of_waiting_letters(visit.admin, [request.group] if plan else [], BY_OFFSET, plan.__contains__)
    if not plan:
        raise RefusedError(f"Group {request.group} has not started on any partition; name topics to set them.")
    if len(plan) > PARTITIONS_MAX:
        raise RefusedError(f"{len(plan)} partitions; at most {PARTITIONS_MAX} are set at a time. Name topics.")
    current = visit.admin.list_share_group_offsets({request.group: list(plan)})[request.group]
    known = current if isinstance(current, dict) else {}
    now = {part: entry.start_offset for part, entry in known.items() if entry is not None}
    values = {"group": group, "targets": TARGETS, "plan": sorted(plan.items()), "now": now, "notes": notes,
              "lines": _lines(plan)}  # fmt: skip
    return Page("reset.html", values)


def _request(visit: Visit) -> Request:
    target = visit.text("target")
    if target not in TARGETS:
        raise RefusedError(f"Where to? Choose one of {', '.join(TARGETS.values())}.")
    offset = timestamp_ms = None
    with parts_of_commands():
        topics = topics_of(visit.text("topics").split())
        if target == "to-offset":
            if not visit.text("offset"):
                raise RefusedError("To which offset? The field is empty.")
            offset = visit.number("offset")
        if target == "to-datetime":
            timestamp_ms = time_ms("The time", visit.text("time"), visit.now_ms)
    return Request(visit.required("group"), False, False, target, topics, offset, timestamp_ms)


def _lines(plan: Plan) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((*part, offset) for part, offset in sorted(plan.items()))
    return text.getvalue()


def execute(visit: Visit, audited: Audited) -> Page:
    """Set what was shown."""
    name, admin = visit.required("group"), visit.admin
    try:
        plan = plan_from_lines(visit.required("plan").splitlines(), name)
    except ValueError as error:
        raise RefusedError(f"The form is not as the console made it: {error}") from error
    if len(plan) > PARTITIONS_MAX:
        raise RefusedError(f"At most {PARTITIONS_MAX} partitions are set at a time.")
    end = audited(visit, f"Set {len(plan)} offsets of group {name}: {_brief(plan)}")
    try:
        values = _set(admin, name, plan)
    except BaseException as error:
        end(f"failed: {getattr(error, 'message', None) or type(error).__name__}")
        raise
    failed = sum(error is not None for _, _, error in values["rows"])
    end(f"{len(plan) - failed} set, {failed} refused")
    return Page("reset_done.html", {"group": name, **values})


def _set(admin: Admin, name: str, plan: Plan) -> dict[str, list]:  # type: ignore[type-arg]
    errors = admin.alter_share_group_offsets(name, plan)
    done = {part: plan[part] for part, error in errors.items() if error is None}
    with parts_of_commands() as notes:
        warn_of_deleted_records(admin, done)
    return {"rows": [(part, offset, errors.get(part)) for part, offset in sorted(plan.items())], "notes": notes}


def _brief(plan: dict[TopicPartition, int]) -> str:
    shown = ", ".join(f"{topic}-{number} to {offset}" for (topic, number), offset in sorted(plan.items())[:20])
    return shown + (f" and {len(plan) - 20} more" if len(plan) > 20 else "")
