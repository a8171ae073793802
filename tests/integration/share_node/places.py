"""Clusters with TLS, access control, and users with certificates, tokens and passwords, in each form that users deploy:
one process of `up`, three processes with a certificate each, and the roles, the scaler and the job of the rendered
Kubernetes example."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from share_node.certs import Authority, certs
from sharegroups.cli.output import lines_of, pairs
from tests.packaging.manifests import (
    KUBERNETES,
    PROBES,
    Doc,
    containers_of,
    environment_of,
    of_kind,
    render_folder,
    role_sets,
    template_of,
)
from tests.support.issuer import Issuer
from tests.support.node import BOUND_S, QUICK, StartedProcess, ready_address, up_words
from tests.support.ports import free_port
from tests.support.store_users import GuardedServer

ADMIN: Final = "admin"
ROLES: Final = ("partition_leader", "group_coordinator", "share_coordinator")
#: What a user shows to say who it is.
CERTIFICATE, TOKEN, PASSWORD = LOGINS = ("certificate", "token", "password")
#: Whose certificate users with a token or password show, since nodes require one.
_ANYONE: Final = "anyone"
_CONTROLLED: Final = {"access.control.enable": "true", "super.users": f"User:{ADMIN}"}
#: Where the manifests mount the secret of a pod, and the scaler's file.
_TLS, _CLIENT = "/etc/sharegroups/tls", "/etc/sharegroups/client"


@dataclass
class Place:
    """A running cluster. `certificate`: returns the client settings with a user's certificate. `issuer`: makes its
    tokens. `store`: the options of `backup`, and the environment that it needs. `scaler`: starts the scaler there as a
    user, at a port. `probes`: the addresses of health checks without TLS, with the services to check there. `logins`:
    the kind of each user's credential; by default a certificate."""

    bootstrap: str
    folder: Path
    certificate: Callable[[str], dict[str, str]]
    issuer: Issuer
    store: tuple[Sequence[str], Mapping[str, str]]
    scaler: Callable[[str, int], StartedProcess]
    nodes: list[StartedProcess]
    probes: list[tuple[str, set[str]]] = field(default_factory=list)
    logins: dict[str, str] = field(default_factory=dict)

    def login(self, user: str) -> dict[str, str]:
        """Return this user's client settings. Only this method knows the kind of credential."""
        kind = self.logins.get(user, CERTIFICATE)
        if kind == CERTIFICATE:
            return self.certificate(user)
        secret = self.folder / f"{user}.{kind}"
        secret.write_text(self.issuer.token(user) if kind == TOKEN else password_of(user))
        if kind == TOKEN:
            return self.certificate(_ANYONE) | {"sasl.oauthbearer.token.location": str(secret)}
        return self.certificate(_ANYONE) | {"sasl.username": user, "sasl.password.location": str(secret)}

    def properties(self, user: str) -> Path:
        """Return the file for --command-config."""
        file = self.folder / f"{user}.login"
        if not file.exists():
            settings = {"bootstrap.servers": self.bootstrap, **self.login(user)}
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file


def password_of(user: str) -> str:
    """Return the password of a user that has one."""
    return f"{user}: correct horse"


def _made(folder: Path) -> Callable[[str], dict[str, str]]:
    """Create a CA and the certificates of the nodes and the administrator; return a function that creates a user's."""

    def certificate(user: str) -> dict[str, str]:
        made = CliRunner().invoke(certs, [str(folder), "--client", user])
        assert made.exit_code == 0, made.output
        return pairs(lines_of(folder / f"{user}.properties"))

    certificate(ADMIN)
    return certificate


def _scaler(folder: Path, properties: Path, port: int) -> StartedProcess:
    environ = {"SHAREGROUPS_LISTEN_PORT": str(port), "SHAREGROUPS_LOG_LEVEL": "error"}
    bootstrap = pairs(lines_of(properties))["bootstrap.servers"]
    words = ["share_node", "scaler", "--bootstrap-server", bootstrap, "--command-config", str(properties)]
    return StartedProcess(words, folder, environ)


@contextmanager
def one_process(folder: Path) -> Iterator[Place]:
    """`sharegroups certs` and `sharegroups up`, as on a laptop."""
    certificate = _made(folder / "certs")
    health, issuer = free_port(), Issuer(folder)
    settings = {**QUICK, **_CONTROLLED, **issuer.settings(), "health.listen.port": str(health)}
    data = Path(tempfile.mkdtemp(prefix="sg-"))
    words = up_words(data / "data", settings, "--config", str(folder / "certs" / "node.toml"))
    with ExitStack() as stack:
        node = StartedProcess(words, folder)
        stack.callback(node.stop)
        ready = json.loads(node.first_line())
        assert (ready["tls"], ready["access_control"]) == (True, True)
        place = Place(
            ready["bootstrap"], folder, certificate, issuer, (["--store", ready["store"]], {}),
            lambda user, port: _scaler(folder, place.properties(user), port), [node],
            [(f"127.0.0.1:{health}", set(PROBES.values()))],
        )  # fmt: skip
        yield place


@contextmanager
def _guarded(*init: str) -> Iterator[GuardedServer]:
    """A store whose default user is off, with a cluster in it. `init`: further words for `sharegroups init`."""
    store = asyncio.run(GuardedServer().start())
    try:
        words = [sys.executable, "-m", "share_node", "init", *init, "--store", store.url("sharegroups-init")]
        environ = {"THE_PASSWORD": store.passwords["sharegroups-init"]}
        done = subprocess.run(
            [*words, "--password-env", "THE_PASSWORD"], env=environ, capture_output=True, timeout=BOUND_S, check=False
        )
        assert done.returncode == 0, done.stderr
        yield store
    finally:
        store.stop()


def _backup_of(store: GuardedServer) -> tuple[list[str], dict[str, str]]:
    user = "sharegroups-backup"
    return ["--store", store.url(user), "--password-env", "THE_PASSWORD"], {"THE_PASSWORD": store.passwords[user]}


def _url(store: GuardedServer) -> str:
    return f"redis://sharegroups:{store.passwords['sharegroups']}@{store.address}"


@contextmanager
def three_processes(folder: Path) -> Iterator[Place]:
    """One process per role on a store of its own with users, each with its own certificate, and its name in
    super.users."""
    certificate = _made(folder / "certs")
    authority = Authority((folder / "certs" / "ca.crt").read_bytes(), (folder / "certs" / "ca.key").read_bytes())
    users, issuer = ";".join(f"User:{name}" for name in (ADMIN, *ROLES)), Issuer(folder)
    with _guarded() as store, ExitStack() as stack:
        nodes: list[StartedProcess] = []
        for role in ROLES:
            tls = _secret(folder / role, authority, role, ["127.0.0.1"])
            settings = {
                **QUICK, **_CONTROLLED, **issuer.settings(), "super.users": users, "ssl.client.auth": "required",
                "ssl.certificate.location": str(tls / "tls.crt"), "ssl.key.location": str(tls / "tls.key"),
                "ssl.ca.location": str(tls / "ca.crt"), "node.name": role, "listen.port": "0",
                "data.dir": str(folder / role / "data"), "store.fsync.always": "true",
            }  # fmt: skip
            words = ["share_node", "serve", role, *(f"{name}={value}" for name, value in settings.items())]
            nodes.append(StartedProcess(words, folder, {"SHAREGROUPS_STORE_URL": _url(store)}))
            stack.callback(nodes[-1].stop)
        bootstrap = ",".join(ready_address(node.first_line()) for node in nodes)
        place = Place(
            bootstrap, folder, certificate, issuer, _backup_of(store),
            lambda user, port: _scaler(folder, place.properties(user), port), nodes,
        )  # fmt: skip
        yield place


def _secret(folder: Path, authority: Authority, name: str, hosts: Sequence[str] = ()) -> Path:
    """Write the files of a secret as cert-manager makes it; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = authority.issue(name, hosts)
    for file, data in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", authority.certificate)):
        (folder / file).write_bytes(data)
    return folder


@contextmanager
def kubernetes(folder: Path) -> Iterator[Place]:
    """Start what the rendered examples/tls starts, with its commands, variables, config maps and certificates.

    Only what one machine does not have is replaced: paths of mounts, addresses, ports, the store's copies, and names of
    pods, since all pods here are on 127.0.0.1. Only the settings for tokens are added.
    """
    docs = render_folder(KUBERNETES / "examples" / "tls")
    authority = Authority.made()
    specs = {each["spec"]["secretName"]: each["spec"] for each in of_kind(docs, "Certificate")}
    hosts = {
        name: [*spec.get("dnsNames", ()), "127.0.0.1"] if "dnsNames" in spec else [] for name, spec in specs.items()
    }
    secrets = {
        name: _secret(folder / name, authority, spec["commonName"], hosts[name])
        for name, spec in specs.items()
        if not spec.get("isCA")
    }

    def certificate(user: str) -> dict[str, str]:
        given = next((path for name, path in secrets.items() if specs[name]["commonName"] == user), None)
        # An application's certificate is made like the scaler's, with its own name.
        tls = given or _secret(folder / user, authority, user)
        text = _map_of(docs, "scaler.properties").replace(_TLS, str(tls))
        return dict(line.split("=", 1) for line in text.splitlines())

    issuer = Issuer(folder)
    (job,) = of_kind(docs, "CronJob")
    (init,) = containers_of(job)
    assert init["command"][:2] == ["sharegroups", "init"]
    with _guarded(*init["command"][2:]) as store, ExitStack() as stack:
        nodes, probes = [], []
        for doc in role_sets(docs):
            (role,) = (each for each in containers_of(doc) if each["name"] == "role")
            health = free_port()
            environ = _on_one_machine(environment_of(role, doc["metadata"], docs), folder, _secret_of(doc, secrets))
            environ |= {_variable(name): value for name, value in issuer.settings().items()}
            environ |= {"SHAREGROUPS_STORE_URL": _url(store), "SHAREGROUPS_HEALTH_LISTEN_PORT": str(health)}
            environ |= {"SHAREGROUPS_NODE_NAME": f"{doc['metadata']['name']}-0"}
            environ |= {"SHAREGROUPS_DATA_DIR": str(folder / doc["metadata"]["name"])}
            assert role["command"][:2] == ["python", "-m"]
            nodes.append(StartedProcess(role["command"][2:], folder, environ))
            stack.callback(nodes[-1].stop)
            asked = {role[probe]["grpc"]["service"] for probe in PROBES}
            assert {role[probe]["grpc"]["port"] for probe in PROBES} == {7934}
            probes.append((f"127.0.0.1:{health}", asked))
        bootstrap = ",".join(_ready_address(node) for node in nodes)

        def scaler(user: str, port: int) -> StartedProcess:
            (doc,) = of_kind(docs, "Deployment")
            (container,) = containers_of(doc)
            environ = environment_of(container, doc["metadata"], docs)
            environ |= {"SHAREGROUPS_LISTEN_HOST": "127.0.0.1", "SHAREGROUPS_LISTEN_PORT": str(port)}
            client = folder / "client"
            client.mkdir(exist_ok=True)
            tls = _secret_of(doc, secrets)
            assert specs[tls.name]["commonName"] == user
            file = client / "scaler.properties"
            file.write_text(_map_of(docs, file.name).replace(_TLS, str(tls)))
            words = [word.replace(_CLIENT, str(client)) for word in [*container["command"][1:], *container["args"]]]
            words = [bootstrap if word == "sharegroups:7932" else word for word in words]
            return StartedProcess(["share_node", *words], folder, environ)

        yield Place(bootstrap, folder, certificate, issuer, _backup_of(store), scaler, nodes, probes)


def _variable(setting: str) -> str:
    return f"SHAREGROUPS_{setting.replace('.', '_').upper()}"


def _ready_address(node: StartedProcess) -> str:
    return ready_address(node.first_line())


def _map_of(docs: list[Doc], file: str) -> str:
    (text,) = (each["data"][file] for each in of_kind(docs, "ConfigMap") if file in each["data"])
    return str(text)


def _secret_of(doc: Doc, secrets: Mapping[str, Path]) -> Path:
    """Return the folder of the secret that a workload mounts for TLS."""
    volumes = template_of(doc)["spec"]["volumes"]
    (name,) = (each["secret"]["secretName"] for each in volumes if each["name"] == "tls")
    return secrets[name]


def _on_one_machine(environ: Mapping[str, str], folder: Path, tls: Path) -> dict[str, str]:
    """Return the variables of a role with the addresses and paths of this machine."""
    ports = dict.fromkeys(("LISTEN_PORT", "INTERNAL_LISTEN_PORT", "METRICS_PORT"), "")
    own = {name: str(free_port()) for name in ports}
    own |= dict.fromkeys(("LISTEN_HOST", "METRICS_HOST", "ADVERTISED_HOST"), "127.0.0.1")
    own |= {"STORE_REPLICAS": "0", "MIN_INSYNC_REPLICAS": "1"}
    assert {f"SHAREGROUPS_{name}" for name in own} <= environ.keys(), "a replaced variable is not in the manifests"
    found = {name: value.replace(_TLS, str(tls)) for name, value in environ.items()}
    return found | {f"SHAREGROUPS_{name}": value for name, value in own.items()}


def documented_entries() -> dict[str, list[list[str]]]:
    """Return the entries that docs/howto/secure.md lists, as command-line words for each kind of user."""
    page = (KUBERNETES.parent.parent / "docs" / "howto" / "secure.md").read_text(encoding="utf-8")
    table = page.split("| User | Entries |", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {
        kind: [shlex.split(words) for words in cell.split("`")[1::2] if words.startswith("--")] for kind, cell in rows
    }
