"""One HTML page that says how share groups fare (PM-37): `collect` asks Spark, `page` writes, `svg` draws."""

from .collect import collect
from .model import Report
from .page import render

__all__ = ["Report", "collect", "render"]
