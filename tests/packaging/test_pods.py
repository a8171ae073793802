"""Who the pods of deploy/kubernetes are, from the files alone: accounts, users of the store, what serves the page."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ports import free_port

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
USER, PASSWORD = "SHAREGROUPS_STORE_USERNAME", "SHAREGROUPS_STORE_PASSWORD_LOCATION"
SENTINELS_USER = "SHAREGROUPS_STORE_SENTINEL_USERNAME"
SENTINELS_PASSWORD = "SHAREGROUPS_STORE_SENTINEL_PASSWORD_LOCATION"


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what the files of a folder have."""
    for path in sorted(folder.glob("*.yaml")):
        yield from (doc for doc in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(doc, dict))


def pod_of(doc: dict[str, Any]) -> dict[str, Any]:
    spec = doc["spec"]["jobTemplate"]["spec"] if doc["kind"] == "CronJob" else doc["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


@pytest.mark.rule("CM-236")
def test_each_role_and_job_has_an_account_of_its_own_without_rights_and_token() -> None:
    accounts = []
    for folder in sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml")):
        if folder.parent.name not in {"bases", "components"}:
            continue
        docs = list(documents(folder))
        here = {doc["metadata"]["name"]: doc for doc in docs if doc["kind"] == "ServiceAccount"}
        used = [
            pod_of(doc)["serviceAccountName"]
            for doc in docs
            if doc["kind"] in {"StatefulSet", "Deployment", "CronJob"} and "serviceAccountName" in pod_of(doc)
        ]
        assert sorted(used) == sorted(here), folder
        assert all(each["automountServiceAccountToken"] is False for each in here.values())
        accounts += used
    assert len(accounts) == len(set(accounts))
    roles = {"group-coordinator", "share-coordinator", "partition-leader"}
    assert roles | {
        "init",
        "scaler",
        "pipeline",
        "pipeline-report",
        "backup",
        "backup-copy",
        "restore-drill",
        "page",
    } == set(accounts)


@pytest.mark.rule("CM-236")
def test_each_role_and_job_has_a_user_of_the_store_whose_password_is_a_file() -> None:
    users = []
    for doc in documents(KUBERNETES / "components" / "store-users"):
        if doc["kind"] == "Component":
            continue
        pod = pod_of(doc)
        (container,) = pod["containers"]
        values = {each["name"]: each.get("value") for each in container["env"]}
        (mount,) = container["volumeMounts"]
        (volume,) = pod["volumes"]
        assert values[PASSWORD] == f"{mount['mountPath']}/password"
        assert "subPath" not in mount, "a file that is mounted alone never changes"
        assert mount["readOnly"] is True
        assert volume == {"name": mount["name"], "secret": {"secretName": values[USER], "defaultMode": 0o440}}
        users.append(values[USER])
    assert len(users) == len(set(users)) == 6


@pytest.mark.rule("CM-248")
def test_all_that_opens_the_store_has_a_user_of_its_sentinels_whose_password_is_a_file() -> None:
    docs = [doc for doc in documents(KUBERNETES / "components" / "store-sentinels") if doc["kind"] != "Component"]
    (executor,) = (doc for doc in documents(KUBERNETES / "components" / "executors") if doc["kind"] == "Pod")
    pods = [*map(pod_of, docs), executor["spec"]]
    for pod in pods:
        (container,) = pod["containers"]
        (mount,) = (each for each in container["volumeMounts"] if each["name"] == "sentinels")
        (volume,) = (each for each in pod["volumes"] if each["name"] == "sentinels")
        assert (mount["mountPath"], mount["readOnly"]) == ("/etc/sharegroups/sentinels", True)
        assert "subPath" not in mount, "a file that is mounted alone never changes"
        assert volume["secret"]["secretName"] == "sharegroups-sentinels"
        assert volume["secret"]["defaultMode"] == 0o440
    for pod in map(pod_of, docs):
        values = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
        assert values == {
            SENTINELS_USER: "sharegroups-asker",
            SENTINELS_PASSWORD: "/etc/sharegroups/sentinels/password",
        }
    assert [pod["containers"][0]["name"] for pod in map(pod_of, docs)] == ["backup", "init", "pipeline", "role"]


@pytest.mark.rule("CM-236")
def test_its_command_serves_the_page_and_nothing_beside_it(tmp_path: Path) -> None:
    page = yaml.safe_load((KUBERNETES / "components" / "page" / "deployment.yaml").read_text(encoding="utf-8"))
    (web,) = page["spec"]["template"]["spec"]["containers"]
    assert web["volumeMounts"] == [{"name": "data", "mountPath": "/srv/sharegroups", "readOnly": True}]
    (tmp_path / "page").mkdir()
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "rows").write_text("secret")
    port = free_port()
    words = [sys.executable, *web["command"][1:-1], str(port), "--bind", "127.0.0.1"]
    words[words.index("--directory") + 1] = str(tmp_path / "page")
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert _got(port, "/index.html") == (404, b""), "before the first page it is not ready"
        (tmp_path / "page" / "index.html").write_text("the page")
        assert _got(port, "/index.html") == (200, b"the page")
        assert _got(port, "/") == (200, b"the page")
        for path in ("/../history/rows", "/%2e%2e/history/rows", "//history/rows"):
            assert _got(port, path)[0] == 404
    finally:
        process.kill()
        process.wait()


def _got(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body; the body is empty for an error. Waits for a server that starts."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, b""
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"no server at port {port}")
