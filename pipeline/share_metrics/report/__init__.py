"""One HTML page that reports on share groups (PM-37): `collect` asks Spark, `page` writes, `svg` draws."""

from .collect import Known, Logs, collect
from .model import Report, totals
from .page import render

__all__ = ["Known", "Logs", "Report", "collect", "render", "totals"]
