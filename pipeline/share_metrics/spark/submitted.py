"""Whether spark-submit has started this program, and what it was told: its Java process is there before Python is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext

from share_metrics.java import SparkStartError

#: Where spark-submit leaves the port of its Java process for the program that it starts.
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_MASTER: Final = "spark.master"
_NAME: Final = "spark.app.name"
#: What this package cannot do without, whatever a cluster's defaults are: windows and hours are UTC.
_OURS: Final = frozenset({"spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled"})


def is_submitted() -> bool:
    """Whether spark-submit has started this program."""
    return _GATEWAY in os.environ


def submitted_conf() -> dict[str, str]:
    """What spark-submit was given: its options, `--conf`, and the cluster's own defaults; without what must be ours."""
    SparkContext._ensure_initialized()
    told = {key: value for key, value in SparkConf().getAll() if key not in _OURS}
    if told.get(_NAME, "").endswith(".py"):  # nobody gave it a name, so it is that of the file
        del told[_NAME]
    return told


def check_submitted(told: Mapping[str, str], master: str | None) -> str:
    """The master that spark-submit has chosen. Raises SparkStartError where the command names another one."""
    chosen = told[_MASTER]
    if master not in {None, chosen}:
        raise SparkStartError(
            f"spark-submit runs this with master {chosen}, and the command says --master {master}; leave out the "
            f"latter, or give it to spark-submit instead"
        )
    return chosen
