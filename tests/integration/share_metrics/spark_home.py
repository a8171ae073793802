"""A Spark home for the tests' processes: the same files, with the zipped Python part unpacked.

Spark's Java puts `$SPARK_HOME/python/lib/pyspark.zip` first on the import path of its Python processes. Python compiles
each module from a zip again for each process: that takes 0.6 s, and the tests start a hundred processes. Here the
archives are therefore folders with links to the installed modules.
"""

from __future__ import annotations

from pathlib import Path

import py4j
import pyspark
from pyspark.find_spark_home import _find_spark_home


def unpacked_home(folder: Path) -> Path:
    """Build the home in an empty folder. Raises AssertionError if the installed Spark has another layout."""
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
