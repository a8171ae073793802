"""The console as a process beside a real cluster: streams, sign-in, a cluster that goes away, signals."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from sharegroups import Admin, Producer
from sharegroups.admin_values import UserScramCredentialUpsertion
from tests.support.node import QUICK, TERMINATED, Cluster
from tests.support.ports import free_port
from tests.unit.sharegroups.console.browser import text_of

from .world import CONSUMED, DLQ, GROUP, RECORDS, TOPIC, fill, letters, running

#: The token of the super user of the cluster with access control.
ROOT = "t" * 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster whose address stays when it is started again."""
    with Cluster(QUICK, "--port", str(free_port())) as made:
        fill({"bootstrap.servers": made.bootstrap})
        yield made


def events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield the events of a stream."""
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


@pytest.mark.rule("CT-164", "CT-165", "CT-166")
def test_letters_are_put_back(cluster: Cluster, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap}
    while letters(settings) < CONSUMED // 3:
        pass
    with running(cluster.bootstrap, tmp_path) as console:
        browser = console.browser
        counted = browser.until(f"/dlq/topic?topic={DLQ}", lambda page: "Counted to the end" in page)
        assert "5 0 Offset rejected by client. ConnectionError: the mail server is not there mail" in text_of(counted)
        listed = f"/dlq/letters?topic={DLQ}&reason=ConnectionError"
        shown = browser.task(browser.send(browser.get(listed), f"/dlq/redrive?topic={DLQ}"))
        done = text_of(browser.task(browser.send(shown, "/task/confirm")))
        assert "mail orders 5 0 0 0" in done
        again = browser.task(browser.send(browser.get(listed), f"/dlq/redrive?topic={DLQ}"))
        assert "mail orders 0 5 0 0" in text_of(again)
        counted = browser.until(f"/dlq/topic?topic={DLQ}", lambda page: "5 5 Offset rejected" in text_of(page))
        assert "5 5 Offset rejected by client. ConnectionError: the mail server is not there mail" in text_of(counted)
        records = text_of(browser.get(f"/records?topic={TOPIC}&offset={RECORDS}"))
        assert "Its offsets are 0 to 64." in records
        begin, end = map(json.loads, console.audit.read_text().splitlines())
        assert (begin["outcome"], end["outcome"]) == ("begins", "done; redriven 5")
        assert begin["from"] == "127.0.0.1"


@pytest.mark.rule("CT-161", "CT-168")
def test_an_open_page_follows_the_cluster_and_outlives_it(cluster: Cluster, tmp_path: Path) -> None:
    quick = tmp_path / "client.properties"
    quick.write_text("default.api.timeout.ms=2000\n")
    with running(cluster.bootstrap, tmp_path, "--command-config", str(quick)) as console:
        address = f"/live?page=/group?group={GROUP}"
        with console.client.stream("GET", address) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            stream = events(response.iter_lines())
            kind, html = next(stream)
            assert kind == "figures"
            assert f"{TOPIC}-0" in text_of(html)
            with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
                for _ in range(1_234):
                    producer.produce(TOPIC, b"more")
            assert next(each for kind, each in stream if "1,2" in text_of(each))
            cluster.node.kill()
            kind, said = next(each for each in stream if each[0] == "trouble")
            assert "The cluster does not answer" in said
            assert "s older than this line" in said
            assert "There is no such page" in console.browser.get("/nope", status=404)
            cluster.start()
            assert next(each for each in stream if each[0] == "figures")
            console.process.signal(signal.SIGTERM)
            for _ in stream:  # until its end, which is no error
                pass
        assert console.process.ended() == TERMINATED


@pytest.mark.rule("CT-162", "CT-165")
def test_each_user_has_their_own_rights(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"User:root {ROOT}\n")
    tokens.chmod(0o600)
    guarded = {
        **QUICK,
        "access.control.enable": "true",
        "super.users": "User:root",
        "sasl.oauthbearer.static.tokens.location": str(tokens),
    }
    with Cluster(guarded) as cluster:
        root = {"bootstrap.servers": cluster.bootstrap, "sasl.oauthbearer.token": ROOT}
        fill(root)
        _add_ann(root)
        with running(cluster.bootstrap, tmp_path, "--allowed-host", "console.example") as console:
            assert "its users sign in" in console.said
            browser = console.browser
            assert "Enter the name and password" in browser.get(f"/group?group={GROUP}")
            wrong = browser.post("/sign-in", user="ann", password="wrong password")
            assert wrong.status_code == 401
            inside = browser.post("/sign-in", user="ann", password="correct horse", to=f"/group?group={GROUP}")
            assert inside.status_code == 200
            assert "User:ann" in inside.text
            assert f"{TOPIC}-0" in inside.text
            config = f"/configs?group={GROUP}&name=share.record.lock.duration.ms"
            refused = browser.send(browser.get(config), "/configs/change", status=403, value="31000")
            assert "sharegroups acls add" in text_of(refused.text)
            browser.send(browser.get("/nodes"), "/sign-out")
            assert browser.post("/sign-in", token=ROOT).status_code == 200
            shown = browser.send(
                browser.get(f"/configs?group={GROUP}&name=share.record.lock.duration.ms"),
                "/configs/change",
                value="31000",
            )
            assert "was changed" in browser.send(shown.text, "/configs/change").text
            log = console.audit.read_text()
            assert "correct horse" not in log
            assert ROOT not in log
            assert [json.loads(line)["user"] for line in log.splitlines()][:2] == ["ann", "User:ann"]


def _add_ann(root: dict[str, str]) -> None:
    """Add a user who may see the group and its topic, and change nothing."""
    seen = [
        Acl(kind, name, PatternType.LITERAL, "User:ann", "*", operation, Permission.ALLOW)
        for kind, name in ((ResourceType.GROUP, GROUP), (ResourceType.TOPIC, TOPIC))
        for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    ]
    with Admin(root) as admin:
        added = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("ann", "correct horse")])
        assert [*added.values(), *admin.create_acls(seen).values()] == [None] * 5
