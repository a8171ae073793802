"""Reports on share groups in one HTML page (PM-37): `collect` queries Spark, `page` writes, `svg` draws."""

from .collect import Known, Logs, collect
from .model import Report, totals
from .page import render

__all__ = ["Known", "Logs", "Report", "collect", "render", "totals"]
