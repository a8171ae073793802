"""`python -m share_metrics.spark.executor`: the program of the pods that Spark's driver starts in Kubernetes (PM-72).

Spark configures an executor with environment variables, and expects the image to have a script that turns them into a
Java command. This is that script for an image of this package. It uses the Java that this package finds (PM-70).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from share_metrics.java import java_home

_CLASS: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
#: Options of the executor, and the environment variables that give their values.
_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(env: Mapping[str, str], java: str, home: str) -> list[str]:
    """The Java command of an executor. Raises ValueError, which names the variables that Spark should have set."""
    missing = [name for name in (*_OPTIONS.values(), "SPARK_EXECUTOR_MEMORY") if not env.get(name)]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} not set; this is run by pods that Spark makes, see docs/pipeline.md, Kubernetes"
        )
    numbers = sorted(int(name.removeprefix(_JAVA_OPTION)) for name in env if name.startswith(_JAVA_OPTION))
    memory = env["SPARK_EXECUTOR_MEMORY"]
    return [
        java,
        *(env[f"{_JAVA_OPTION}{number}"] for number in numbers),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        f"{home}/conf:{home}/jars/*",
        _CLASS,
        *(word for option, name in _OPTIONS.items() for word in (option, env[name])),
    ]


def main() -> None:
    """Replace this process with the executor's Java process. Raises NoJavaError; exits if a variable is missing."""
    home = java_home() or os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        words = command(os.environ, java, _find_spark_home())
    except ValueError as error:
        raise SystemExit(str(error)) from None
    os.environ["SPARK_HOME"] = _find_spark_home()
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
