"""The Java command of an executor's pod, built from the variables that Spark sets."""

from __future__ import annotations

import pytest

from share_metrics.spark.executor import command, main

REPORTED = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_EXECUTOR_MEMORY": "1g",
}


def test_it_says_all_that_spark_has_printed_with_java_options_in_their_order() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-D{number}" for number in (10, 2, 1)}
    assert command(REPORTED | options, "/j/bin/java", "/s") == [
        "/j/bin/java", "-D1", "-D2", "-D10", "-Xms1g", "-Xmx1g", "-cp", "/s/conf:/s/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.0.0.7:7078", "--executor-id", "3", "--cores", "1",
        "--app-id", "spark-1", "--hostname", "10.0.0.8", "--resourceProfileId", "0", "--podName", "exec-3",
    ]  # fmt: skip


@pytest.mark.parametrize("name", REPORTED)
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} not set; this is run by pods that Spark makes"):
        command({key: value for key, value in REPORTED.items() if key != name}, "java", "/s")


def test_who_runs_it_by_hand_is_answered_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REPORTED:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match=r"SPARK_DRIVER_URL, .* not set"):
        main()
