"""The part of Kubernetes' API that Spark's driver uses: pods, run as processes here, with the permissions of a Role.

It behaves like an API server: a forbidden request gets 403, and every request is recorded by verb and resource,
as a Role names them. Like a kubelet, it runs a container's command with its variables, and marks a pod as failed if the
command exits with an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

Right = tuple[str, str]
_END_S: Final = 60


class Pods:
    """The state of the API server and the kubelet."""

    def __init__(self, rights: set[Right], folder: Path, environment: Mapping[str, str]) -> None:
        self.rights = rights
        self.asked: set[Right] = set()
        self.made: list[dict[str, Any]] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._folder = folder
        self._environment = dict(environment)
        self._lock = threading.Lock()

    def add(self, pod: dict[str, Any], *, run: bool = True) -> dict[str, Any]:
        """Create a pod, and run the command of its only container."""
        name = pod["metadata"]["name"]
        pod["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-11-26T12:00:00Z"}
        (container,) = pod["spec"]["containers"]
        if run:
            self.made.append(pod)
            reported = {one["name"]: self._value(name, one) for one in container["env"]}
            with (self._folder / f"{name}.log").open("wb") as log:
                words = [*container["command"], *container.get("args", ())]
                self.processes[name] = subprocess.Popen(
                    words, stdout=log, stderr=log, env=self._environment | reported, cwd=self._folder
                )
        with self._lock:
            self._pods[name] = pod
        return self.seen(pod)

    def seen(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return the pod with its current status."""
        process = self.processes.get(pod["metadata"]["name"])
        ended = None if process is None else process.poll()
        state: dict[str, Any] = {"running": {"startedAt": "2026-11-26T12:00:00Z"}}
        phase = "Running"
        if ended is not None:
            state = {"terminated": {"exitCode": 128 - ended if ended < 0 else ended}}
            phase = "Failed" if ended else "Succeeded"
        status = {"name": pod["spec"]["containers"][0]["name"], "ready": ended is None, "state": state}
        return pod | {"status": {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [status]}}

    def there(self, labels: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return the pods that have all these labels."""
        with self._lock:
            found = list(self._pods.values())
        return [pod for pod in found if set(labels) <= pod["metadata"].get("labels", {}).items()]

    def named(self, name: str) -> dict[str, Any] | None:
        """Return the pod with that name; None if there is none."""
        with self._lock:
            return self._pods.get(name)

    def remove(self, pods: Sequence[dict[str, Any]]) -> None:
        """End pods, and remove them."""
        for pod in pods:
            name = pod["metadata"]["name"]
            with self._lock:
                self._pods.pop(name, None)
            if (process := self.processes.get(name)) is not None:
                process.terminate()

    def end(self) -> None:
        """Kill all processes started here."""
        for process in self.processes.values():
            process.kill()
            process.wait(_END_S)

    @staticmethod
    def _value(name: str, one: Mapping[str, Any]) -> str:
        if "value" in one:
            return str(one["value"])
        field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        return {"status.podIP": "127.0.0.1", "metadata.name": name}.get(field, "")


def _handler(pods: Pods, namespace: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def _send(self, status: int, reported: Mapping[str, Any]) -> None:
            body = json.dumps(reported).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _status(self, status: int, words: str) -> None:
            reported = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": words}
            self._send(status, reported)

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            resource, _, name = url.path.removeprefix(f"/api/v1/namespaces/{namespace}/").partition("/")
            verb = _verb(self.command, name, query)
            pods.asked.add((verb, resource))
            if (verb, resource) not in pods.rights:
                self._status(403, f"cannot {verb} {resource}")
                return
            assert resource == "pods", f"teach this API server {resource}"
            if verb == "create":
                self._send(201, pods.add(json.loads(body)))
                return
            labels = [
                (key, value)
                for word in ",".join(query.get("labelSelector", [])).split(",")
                for key, equals, value in [word.partition("=")]
                if equals and not key.endswith("!")
            ]
            if name and (one := pods.named(name)) is None:
                self._status(404, f"pods {name!r} not found")
                return
            chosen = [one] if name and one is not None else pods.there(labels)
            if verb.startswith("delete"):
                pods.remove(chosen)
                self._send(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
            elif name:
                self._send(200, pods.seen(chosen[0]))
            else:
                meta = {"resourceVersion": "1"}
                seen = [pods.seen(each) for each in chosen]
                self._send(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": seen})

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names of http.server

    return Handler


def _verb(method: str, name: str, query: Mapping[str, Sequence[str]]) -> str:
    """Return the verb of a request, as a Role names it."""
    if method == "GET":
        return "watch" if "watch" in query else "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}[method]


@contextmanager
def api_server(pods: Pods, namespace: str) -> Iterator[str]:
    """Serve the API; yields its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(pods, namespace))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(_END_S)
        server.server_close()
        pods.end()


def granted(role: Mapping[str, Any]) -> set[Right]:
    """Return the permissions that a Role grants in the core API."""
    rules: Sequence[Mapping[str, Any]] = role["rules"]
    assert all(rule["apiGroups"] == [""] and rule.keys() == {"apiGroups", "resources", "verbs"} for rule in rules)
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


def inherited() -> dict[str, str]:
    """Return the variables that a pod's image would set; its `python` is the one that runs these tests, even if their
    virtual environment is not activated."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return found | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
