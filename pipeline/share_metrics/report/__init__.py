"""Reports on share groups in one HTML page (PM-37): `collect` queries Spark, `page` writes, `svg` draws."""

from share_metrics.report.collect import Known, Logs, collect
from share_metrics.report.model import Report, totals
from share_metrics.report.page import render

__all__ = ["Known", "Logs", "Report", "collect", "render", "totals"]
