"""Reports on share groups in one HTML page (PM-37): `by_spark` and `by_process` collect, `page` writes, `svg` draws.

`collect` and `Logs` need Spark, which is imported when one of them is used for the first time.
"""

from typing import TYPE_CHECKING, Any

from share_metrics.report.model import Report, totals
from share_metrics.report.page import render
from share_metrics.report.periods import Known

if TYPE_CHECKING:
    from share_metrics.report.by_spark import Logs, collect

__all__ = ["Known", "Logs", "Report", "collect", "render", "totals"]


def __getattr__(name: str) -> Any:
    """The names that need Spark."""
    if name not in {"Logs", "collect"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from share_metrics.report import by_spark  # noqa: PLC0415 - a page of few rows needs no Spark

    return getattr(by_spark, name)
