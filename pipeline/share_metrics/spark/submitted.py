"""Detects that spark-submit started this program, and reads its options. Its Java process starts before Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext

from share_metrics.java import SparkStartError

#: The variable in which spark-submit passes the port of its Java process to the program that it starts.
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_MASTER: Final = "spark.master"
_NAME: Final = "spark.app.name"
#: Settings that this package needs regardless of a cluster's defaults: windows and hours are UTC.
_OURS: Final = frozenset({"spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled"})


def is_submitted() -> bool:
    """Return whether spark-submit has started this program."""
    return _GATEWAY in os.environ


def submitted_conf() -> dict[str, str]:
    """The settings of spark-submit: its options, `--conf`, and the cluster's own defaults; without those of _OURS."""
    SparkContext._ensure_initialized()
    told = {key: value for key, value in SparkConf().getAll() if key not in _OURS}
    if told.get(_NAME, "").endswith(".py"):  # no name was given, so Spark uses the file's
        del told[_NAME]
    return told


def check_submitted(told: Mapping[str, str], master: str | None) -> str:
    """The master that spark-submit has chosen. Raises SparkStartError if the command names another one."""
    chosen = told[_MASTER]
    if master not in {None, chosen}:
        raise SparkStartError(
            f"spark-submit runs this with master {chosen}, and the command says --master {master}; leave out the "
            f"latter, or give it to spark-submit instead"
        )
    return chosen
