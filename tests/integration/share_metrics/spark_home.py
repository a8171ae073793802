"""The installed Spark as processes of the tests see it: the same files, but Python's part of it lies there unpacked.

Spark's Java puts `$SPARK_HOME/python/lib/pyspark.zip` before all else that its Python processes could import from.
Out of a zip Python compiles each module anew, for each process: that takes 0.6 s, and the tests start a hundred. So
these archives are folders here, which lead to the same modules where they are installed.
"""

from __future__ import annotations

from pathlib import Path

import py4j
import pyspark
from pyspark.find_spark_home import _find_spark_home


def unpacked_home(folder: Path) -> Path:
    """Make it in an empty folder. Raises AssertionError when the installed Spark looks different."""
    installed = Path(_find_spark_home())
    archives = {path.name for path in (installed / "python" / "lib").iterdir()}
    (of_py4j,) = (name for name in archives if name.startswith("py4j-"))
    assert archives == {of_py4j, "pyspark.zip"}, f"{installed}/python/lib has {sorted(archives)}"
    for name in ("bin", "jars", "sbin"):
        (folder / name).symlink_to(installed / name)
    for archive, package in ((of_py4j, py4j), ("pyspark.zip", pyspark)):
        (path,) = package.__path__
        unpacked = folder / "python" / "lib" / archive
        unpacked.mkdir(parents=True)
        (unpacked / package.__name__).symlink_to(path)
    return folder
