"""The image as users start it: not as root, on a read-only root, healthy once ready, and delivering records."""

import json
import shutil
from collections.abc import Iterator

import pytest

from .docker import Composed, Container, Started, run

ROLES = ("share-coordinator", "group-coordinator", "partition-leader")


@pytest.fixture
def composed(image: str) -> Iterator[Composed]:
    if shutil.which("docker-compose") is None:
        pytest.skip("needs Docker: docker-compose is not installed")
    project = Composed(image)
    try:
        project.compose("up", "--detach")
        yield project
    finally:
        project.remove()


def consumed(container: Container, group: str, records: int) -> list[str]:
    """Return the values that a consumer inside the container receives; it leaves once it has this many."""
    words = ["consume", "--topic", "orders", "--group", group, "--max-messages", str(records), "--timeout-ms", "60000"]
    return container.exec("sharegroups", *words).split()


def test_what_the_image_promises(image: str) -> None:
    (facts,) = json.loads(run(["docker", "image", "inspect", image]))
    config = facts["Config"]
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"] == ["CMD", "python", "-m", "share_node.health"]
    assert "SHAREGROUPS_ALLOW_PLAINTEXT" not in " ".join(config["Env"])
    assert facts["Size"] < 180_000_000
    listed = json.loads(run(["docker", "run", "--rm", image, "cat", "/usr/share/sharegroups/sbom.cdx.json"]))
    assert {"grpcio", "sharegroups", "libc6", "python"} <= {each["name"] for each in listed["components"]}
    found = run(["docker", "run", "--rm", image, "sh", "-c", "id -u; which sharegroups valkey-server pip || true"])
    assert found.split() == ["10001", "/opt/sharegroups/bin/sharegroups", "/opt/sharegroups/bin/valkey-server"]


@pytest.mark.rule("CM-60")
def test_plaintext_beyond_loopback_needs_a_word(image: str) -> None:
    container = Started(image)
    try:
        assert run(["docker", "wait", container.name]).strip() == "1"
        assert "allow.plaintext=true" in container.logs()
    finally:
        container.remove()


@pytest.mark.rule("CM-70")
def test_one_container_is_a_whole_cluster(image: str) -> None:
    container = Started(
        image, "--env", "SHAREGROUPS_ALLOW_PLAINTEXT=true", "--env", "SHAREGROUPS_ADVERTISED_HOST=127.0.0.1"
    )
    try:
        container.wait_healthy()
        container.exec("sharegroups", "topics", "create", "orders")
        container.exec("sharegroups", "produce", "orders", text="a\nb\nc\n")
        assert consumed(container, "g", 3) == ["a", "b", "c"]
        assert container.stop() == 143  # `up` after SIGTERM (CT-80)
        container.start()
        container.wait_healthy()
        assert consumed(container, "another", 3) == ["a", "b", "c"]
    finally:
        container.remove()


@pytest.mark.rule("CM-12", "CM-20")
def test_a_process_per_role_on_one_store(composed: Composed) -> None:
    """A leader that is killed and restarted continues where it was."""
    containers = {role: composed.container(role) for role in ROLES}
    for container in containers.values():
        container.wait_healthy()
        assert container.inspect("{{.Config.User}} {{.HostConfig.ReadonlyRootfs}}") == "10001:10001 true"
    tools = containers["group-coordinator"]
    tools.exec("sharegroups", "topics", "create", "orders", "--partitions", "3")
    sent = [f"order-{number}" for number in range(200)]
    tools.exec("sharegroups", "produce", "orders", text="\n".join(sent))
    first = consumed(tools, "workers", 120)
    leader = containers["partition-leader"]
    leader.kill()
    leader.start()
    rest = consumed(tools, "workers", 80)
    assert sorted(first + rest) == sorted(sent)
    assert leader.stop() == 0
