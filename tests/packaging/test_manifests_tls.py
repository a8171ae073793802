"""examples/tls: production with TLS. The roles have certificates that cert-manager makes for the names by which they
are called, probes need none, and the scaler has one of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

import grpc
import pytest

from shard_runtime.rpc.certificates import covers
from share_node.certs import Authority
from share_node.scaler.command import scaler
from sharegroups.config import ADMIN, Config

from .manifest_links import faults
from .manifests import KUBERNETES, Doc, containers_of, environment_of, name_of, of_kind, render_folder, role_sets
from .manifests import template_of as template

EXAMPLE = KUBERNETES / "examples" / "tls"
#: The files of a secret that cert-manager makes for a certificate of an authority.
MADE = frozenset({"tls.crt", "tls.key", "ca.crt"})
#: Those of the secrets that a person makes, by the volume's name.
BY_HAND = {
    "store-tls": frozenset({"ca.crt"}), "store-user": frozenset({"password"}), "sentinels": frozenset({"password"}),
}  # fmt: skip


def mounted(doc: Doc, container: Doc, docs: list[Doc]) -> dict[str, frozenset[str]]:
    """Return the files of secrets and config maps that a container can read, by folder."""
    maps = {each["metadata"]["name"]: frozenset(each["data"]) for each in of_kind(docs, "ConfigMap")}
    volumes = {volume["name"]: volume for volume in template(doc)["spec"]["volumes"]}
    found = {}
    for mount in container["volumeMounts"]:
        volume = volumes.get(mount["name"], {})  # a claim of the set is none
        if "secret" in volume:
            found[mount["mountPath"]] = BY_HAND.get(volume["name"], MADE)
        elif "configMap" in volume:
            found[mount["mountPath"]] = maps[volume["configMap"]["name"]]
    return found


def unreadable(paths: list[str], files: dict[str, frozenset[str]]) -> list[str]:
    """Return those of the paths at which nothing is mounted."""
    return [path for path in paths if PurePosixPath(path).name not in files.get(str(PurePosixPath(path).parent), ())]


def tls_faults(docs: list[Doc]) -> Iterator[str]:
    """Yield every TLS and access control mistake in the manifests: roles that accept clients without a certificate or
    do not restrict them, files that are not mounted, and host names that no certificate covers."""
    certificates = {each["spec"]["secretName"]: each["spec"] for each in of_kind(docs, "Certificate")}
    issuers = {each["metadata"]["name"] for each in of_kind(docs, "Issuer")}
    for name, spec in certificates.items():
        if spec["issuerRef"]["name"] not in issuers:
            yield f"secret {name}: there is no issuer {spec['issuerRef']['name']}"
    for doc in role_sets(docs):
        (role,) = (each for each in containers_of(doc) if each["name"] == "role")
        seen = environment_of(role, doc["metadata"], docs)
        files = [seen.get(f"SHAREGROUPS_SSL_{name}_LOCATION", "nowhere") for name in ("CERTIFICATE", "KEY", "CA")]
        yield from (
            f"{name_of(doc)}: nothing is mounted at {path}" for path in unreadable(files, mounted(doc, role, docs))
        )
        if seen.get("SHAREGROUPS_SSL_CLIENT_AUTH") != "required" or seen["SHAREGROUPS_ALLOW_PLAINTEXT"] != "false":
            yield f"{name_of(doc)}: clients without a certificate are accepted"
        if seen.get("SHAREGROUPS_ACCESS_CONTROL_ENABLE") != "true":
            yield f"{name_of(doc)}: clients may do everything"
        clients = {f"User:{spec['commonName']}" for spec in certificates.values() if "dnsNames" not in spec}
        if not set(seen.get("SHAREGROUPS_SUPER_USERS", "").split(";")) & clients:
            yield f"{name_of(doc)}: no client with a certificate can add entries"
        (secret,) = (each["secret"] for each in template(doc)["spec"]["volumes"] if each["name"] == "tls")
        names = certificates[secret["secretName"]]["dnsNames"]
        hosts = [seen["SHAREGROUPS_ADVERTISED_HOST"], "sharegroups", "sharegroups.sharegroups.svc"]
        for host in hosts:
            if not any(covers(name, host) for name in names):
                yield f"{name_of(doc)}: its certificate is not for {host}"
    for doc in of_kind(docs, "Service"):
        ours = doc["metadata"]["name"] != "scaler"
        if ours and any(port.get("appProtocol") == "kubernetes.io/h2c" for port in doc["spec"]["ports"]):
            yield f"{name_of(doc)}: says that its ports are without TLS"


def test_nothing_is_wrong_with_the_example() -> None:
    docs = render_folder(EXAMPLE)
    assert faults(docs, "production") == []
    assert list(tls_faults(docs)) == []


@pytest.mark.rule("CM-60")
def test_probes_use_a_port_without_tls() -> None:
    for doc in role_sets(render_folder(EXAMPLE)):
        (role,) = (each for each in containers_of(doc) if each["name"] == "role")
        ports = {port["name"]: port["containerPort"] for port in role["ports"]}
        probes = {role[probe]["grpc"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert probes == {ports["health"]}
        assert ports["health"] not in {ports["grpc"], ports["internal"]}


@pytest.mark.rule("CM-60")
def test_the_scaler_reaches_the_roles_with_a_certificate_of_its_own() -> None:
    docs = render_folder(EXAMPLE)
    (doc,) = of_kind(docs, "Deployment")
    (container,) = containers_of(doc)
    assert doc["metadata"]["name"] == "scaler"
    files = mounted(doc, container, docs)
    words = [*container["command"][2:], *container["args"]]
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options.keys() <= {text for each in scaler.params for text in each.opts}
    assert unreadable([options["--command-config"]], files) == []
    (text,) = (
        each["data"]["scaler.properties"] for each in of_kind(docs, "ConfigMap") if "scaler.properties" in each["data"]
    )
    given = dict(line.split("=", 1) for line in text.splitlines())
    Config(ADMIN, {"bootstrap.servers": options["--bootstrap-server"], **given})
    assert given["security.protocol"] == "SSL"
    assert unreadable([path for name, path in given.items() if name.endswith(".location")], files) == []


def _without(docs: list[Doc], change: str) -> list[Doc]:
    docs = copy.deepcopy(docs)
    certificate = next(each for each in of_kind(docs, "Certificate") if each["metadata"]["name"] == "sharegroups-node")
    leader = next(each for each in role_sets(docs) if each["metadata"]["name"] == "partition-leader")
    role = template(leader)["spec"]["containers"][0]
    service = next(each for each in of_kind(docs, "Service") if each["metadata"]["name"] == "sharegroups")
    match change:
        case "a name":
            certificate["spec"]["dnsNames"].remove("*.partition-leader.sharegroups.svc")
        case "the mount":
            role["volumeMounts"] = [each for each in role["volumeMounts"] if each["name"] != "tls"]
        case "the demand":
            role["env"] = [each for each in role["env"] if each["name"] != "SHAREGROUPS_SSL_CLIENT_AUTH"]
        case "access control":
            role["env"] = [each for each in role["env"] if each["name"] != "SHAREGROUPS_ACCESS_CONTROL_ENABLE"]
        case "the administrator":
            docs = [each for each in docs if name_of(each) != "Certificate sharegroups-admin"]
        case "the issuer":
            docs = [each for each in docs if name_of(each) != "Issuer sharegroups-authority"]
        case "the protocol":
            service["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c"
    return docs


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("a name", "its certificate is not for pod-0.partition-leader.sharegroups.svc"),
        ("the mount", "nothing is mounted at /etc/sharegroups/tls/tls.crt"),
        ("the demand", "clients without a certificate are accepted"),
        ("access control", "clients may do everything"),
        ("the administrator", "no client with a certificate can add entries"),
        ("the issuer", "there is no issuer sharegroups-authority"),
        ("the protocol", "says that its ports are without TLS"),
    ],
)
def test_an_example_without_something_is_refused(change: str, fault: str) -> None:
    assert any(fault in said for said in tls_faults(_without(render_folder(EXAMPLE), change)))


@pytest.mark.parametrize(
    ("host", "accepted"),
    [
        ("partition-leader-2.partition-leader.sharegroups.svc", True),
        ("sharegroups.sharegroups.svc", True),
        ("sharegroups", True),
        ("partition-leader-2.partition-leader.elsewhere.svc", False),
    ],
)
def test_grpc_accepts_the_names_of_the_certificate_for_the_pods(host: str, accepted: bool) -> None:
    spec = next(each["spec"] for each in of_kind(render_folder(EXAMPLE), "Certificate") if "dnsNames" in each["spec"])
    authority = Authority.made()
    certificate, key = authority.issue("sharegroups-node", spec["dnsNames"])
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    options: Any = [("grpc.ssl_target_name_override", host)]
    trusted = grpc.ssl_channel_credentials(authority.certificate)
    try:
        with grpc.secure_channel(f"127.0.0.1:{port}", trusted, options) as channel:
            ready = grpc.channel_ready_future(channel)
            if accepted:
                ready.result(20)
            else:
                with pytest.raises(grpc.FutureTimeoutError):
                    ready.result(1)
    finally:
        server.stop(0)
