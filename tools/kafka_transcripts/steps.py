"""The commands that both servers are asked, in their order. They use topics and groups of their own names."""

from __future__ import annotations

from typing import Final, NamedTuple

#: What the names of all topics, groups and users of a run end with; a run puts its own word there.
MARK: Final = "@"


class Step(NamedTuple):
    """A command. `words`: its arguments without the address, with MARK in names. `given`: its standard input.
    `unordered`: the lines of its output have no order. `own`: of its output only lines with names of this run count,
    and those of internal topics. `keep`: it runs in the background under this name, from its first line of output until
    a step that ends it."""

    tool: str
    words: str
    given: str = ""
    unordered: bool = False
    own: bool = False
    keep: str = ""

    @property
    def command(self) -> str:
        """The command as a transcript shows it."""
        return f"{self.tool} {self.words}".replace(MARK, "")


#: The tool of a step that ends a command in the background; its words are the name.
END: Final = "end"

_TOPICS: Final = (
    Step("topics", "--create --topic ta@ --partitions 2"),
    Step("topics", "--create --topic ta@"),
    Step("topics", "--create --topic ta@ --if-not-exists"),
    Step("topics", "--create --topic tb@ --partitions 1 --config retention.ms=3600000"),
    Step("topics", "--create --topic bad/name@"),
    Step("topics", "--create --topic tc@ --partitions 0"),
    Step("topics", "--create --topic tc@ --config no.such.config=1"),
    Step("topics", "--create --topic tc@ --config retention.ms=abc"),
    Step("topics", "--create --topic tc@ --replica-assignment 1,1"),
    Step("topics", "--delete --topic tc@ --if-exists"),
    Step("topics", "--create --topic td@ --replication-factor 3"),
    Step("topics", "--delete --topic td@ --if-exists"),
    Step("topics", "--list", own=True, unordered=True),
    Step("topics", "--list --exclude-internal", own=True, unordered=True),
    Step("topics", "--describe --topic ta@"),
    Step("topics", "--describe --topic tb@"),
    Step("topics", "--describe --topic nope@"),
    Step("topics", "--describe --under-replicated-partitions", own=True),
    Step("topics", "--describe --unavailable-partitions", own=True),
    Step("topics", "--describe --topics-with-overrides", own=True),
    Step("topics", "--alter --topic ta@ --partitions 3"),
    Step("topics", "--alter --topic ta@ --partitions 1"),
    Step("topics", "--alter --topic nope@ --partitions 3"),
    Step("topics", "--delete --topic nope@"),
)
_CONFIGS: Final = (
    Step("configs", "--describe --entity-type topics --entity-name tb@"),
    Step("configs", "--alter --entity-type topics --entity-name tb@ --add-config retention.ms=1000000"),
    Step("configs", "--alter --entity-type topics --entity-name tb@ --add-config segment.ms=7200000"),
    Step("configs", "--describe --entity-type topics --entity-name tb@"),
    Step("configs", "--alter --entity-type topics --entity-name tb@ --delete-config retention.ms"),
    Step("configs", "--alter --entity-type topics --entity-name tb@ --add-config no.such.config=1"),
    Step("configs", "--alter --entity-type topics --entity-name tb@ --add-config retention.ms=abc"),
    Step("configs", "--alter --entity-type topics --entity-name nope@ --add-config retention.ms=1000"),
    Step("configs", "--describe --entity-type topics --entity-name nope@"),
    Step("configs", "--describe --entity-type topics --entity-name tb@ --all", unordered=True),
    Step("configs", "--alter --entity-type groups --entity-name ga@ --add-config share.auto.offset.reset=earliest"),
    Step("configs", "--describe --entity-type groups --entity-name ga@"),
    Step("configs", "--describe --entity-type groups --entity-name ga@ --all", unordered=True),
    Step("configs", "--alter --entity-type groups --entity-name ga@ --add-config share.auto.offset.reset=nowhere"),
    Step("configs", "--alter --entity-type groups --entity-name ga@ --add-config share.record.lock.duration.ms=1"),
    Step("configs", "--alter --entity-type groups --entity-name ga@ --add-config no.such.config=1"),
    Step("configs", "--alter --entity-type groups --entity-name gx@ --delete-config share.auto.offset.reset"),
    Step("configs", "--describe --entity-type brokers --entity-name 1"),
    Step("configs", "--describe --entity-type brokers --entity-default"),
    Step("configs", "--alter --entity-type brokers --entity-name 1 --add-config group.share.max.size=100"),
    Step("configs", "--alter --entity-type users --entity-name alice@ "
         "--add-config SCRAM-SHA-256=[iterations=4096,password=secret-word]"),
    Step("configs", "--describe --entity-type users --entity-name alice@"),
    Step("configs", "--alter --entity-type users --entity-name alice@ --delete-config SCRAM-SHA-256"),
    Step("configs", "--alter --entity-type users --entity-name alice@ --delete-config SCRAM-SHA-256"),
    Step("configs", "--alter --entity-type users --entity-name alice@ --add-config producer_byte_rate=100000"),
    Step("configs", "--describe --entity-type users --entity-name alice@"),
    Step("configs", "--alter --entity-type users --entity-name alice@ --delete-config producer_byte_rate"),
    Step("configs", "--alter --entity-type clients --entity-name app@ --add-config consumer_byte_rate=100000"),
    Step("configs", "--describe --entity-type clients --entity-name app@"),
    Step("configs", "--alter --entity-type clients --entity-name app@ --delete-config consumer_byte_rate"),
    Step("configs", "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=100"),
    Step("configs", "--describe --entity-type client-metrics"),
)  # fmt: skip
_ACLS: Final = (
    Step("acls", "--add --allow-principal User:bob@ --operation Read --operation Describe --topic ta@", unordered=True),
    Step("acls", "--add --deny-principal User:eve@ --operation All --group g@ --resource-pattern-type prefixed",
         unordered=True),
    Step("acls", "--add --allow-principal User:app@ --producer --topic tb@", unordered=True),
    Step("acls", "--add --allow-principal User:app@ --consumer --topic tb@ --group ga@", unordered=True),
    Step("acls", "--list --topic ta@", unordered=True),
    Step("acls", "--list --topic tb@ --principal User:app@", unordered=True),
    Step("acls", "--list --group ga@ --resource-pattern-type match", unordered=True),
    Step("acls", "--list --topic nope@", unordered=True),
    Step("acls", "--add --allow-principal bob --operation Read --topic ta@", unordered=True),
    Step("acls", "--remove --force --topic ta@", unordered=True),
    Step("acls", "--remove --force --topic tb@", unordered=True),
    Step("acls", "--remove --force --group ga@", unordered=True),
    Step("acls", "--remove --force --group g@ --resource-pattern-type prefixed", unordered=True),
    Step("acls", "--remove --force --topic nope@", unordered=True),
)  # fmt: skip
_NUMBERS: Final = "".join(f"{number}\n" for number in range(1, 31))
_SHOWN: Final = "".join(
    f" --formatter-property print.{what}=true" for what in ("key", "headers", "offset", "delivery", "partition")
)
_RECORDS: Final = (
    Step("console-producer", "--topic tb@", _NUMBERS),
    Step("console-producer", "--topic tb@ --reader-property parse.key=true --reader-property parse.headers=true "
         "--reader-property headers.delimiter=; --reader-property key.separator=: --compression-codec gzip",
         "h:1,g:2;k:with headers\n"),
    Step("get-offsets", "--topic tb@"),
    Step("get-offsets", "--topic tb@ --time earliest"),
    Step("get-offsets", "--topic tb@ --time max-timestamp"),
    Step("get-offsets", "--topic nope@"),
    Step("console-share-consumer", f"--topic tb@ --group ga@ --max-messages 5 --timeout-ms 30000{_SHOWN}"),
    Step("console-share-consumer", f"--topic tb@ --group ga@ --max-messages 1 --timeout-ms 30000 --reject{_SHOWN}"),
    Step("console-share-consumer", f"--topic tb@ --group ga@ --max-messages 1 --timeout-ms 30000 --release{_SHOWN}"),
    Step("console-share-consumer", f"--topic tb@ --group ga@ --max-messages 25 --timeout-ms 30000{_SHOWN}",
         unordered=True),
    Step("console-share-consumer", "--topic tb@ --group ga@ --timeout-ms 4000"),
)  # fmt: skip
_G: Final = "share-groups"
_GROUPS: Final = (
    Step(_G, "--list", own=True, unordered=True),
    Step(_G, "--list --state", own=True, unordered=True),
    Step(_G, "--list --state Stable", own=True),
    Step(_G, "--list --state bogus"),
    Step("groups", "--list", own=True),
    Step("groups", "--list --share", own=True),
    Step("groups", "--list --group-type share", own=True),
    Step("groups", "--list --protocol share", own=True),
    Step("groups", "--list --consumer", own=True),
    Step(_G, "--describe --group ga@"),
    Step(_G, "--describe --group ga@ --offsets --verbose"),
    Step(_G, "--describe --group ga@ --members"),
    Step(_G, "--describe --group ga@ --members --verbose"),
    Step(_G, "--describe --group ga@ --state"),
    Step(_G, "--describe --group ga@ --state --verbose"),
    Step(_G, "--describe --all-groups", own=True),
    Step(_G, "--describe --group nope@"),
    Step(_G, "--describe --group nope@ --members"),
    Step(_G, "--describe --group nope@ --state"),
    Step(_G, "--describe --group ga@ --group nope@"),
)
_MEMBERS: Final = (
    Step("configs", "--alter --entity-type groups --entity-name gm@ --add-config share.auto.offset.reset=earliest"),
    Step("console-share-consumer", "--topic tb@ --group gm@ --command-property client.id=one", keep="member"),
    Step(_G, "--list --state Stable", own=True),
    Step(_G, "--describe --group gm@ --members"),
    Step(_G, "--describe --group gm@ --members --verbose"),
    Step(_G, "--describe --group gm@ --state"),
    Step(_G, "--describe --group gm@ --state --verbose"),
    Step(_G, "--reset-offsets --group gm@ --topic tb@ --to-earliest --execute"),
    Step(_G, "--reset-offsets --group gm@ --topic tb@ --to-earliest --dry-run"),
    Step(_G, "--delete-offsets --group gm@ --topic tb@"),
    Step(_G, "--delete --group gm@"),
    Step(END, "member"),
    Step(_G, "--describe --group gm@ --state"),
    Step(_G, "--delete --group gm@"),
)
_OFFSETS: Final = (
    Step(_G, "--reset-offsets --group ga@ --topic tb@ --to-earliest --dry-run", unordered=True),
    Step(_G, "--reset-offsets --group ga@ --topic tb@:0 --to-earliest --execute", unordered=True),
    Step(_G, "--describe --group ga@"),
    Step(_G, "--reset-offsets --group ga@ --all-topics --to-latest --execute", unordered=True),
    Step(_G, "--describe --group ga@"),
    Step(_G, "--reset-offsets --group ga@ --topic ta@ --to-latest --execute", unordered=True),
    Step(_G, "--reset-offsets --group ga@ --topic tb@ --to-datetime 2020-01-01T00:00:00.000 --execute", unordered=True),
    Step(_G, "--reset-offsets --group ga@ --topic tb@ --to-datetime 2099-01-01T00:00:00.000 --dry-run", unordered=True),
    Step(_G, "--describe --group ga@"),
    Step(_G, "--reset-offsets --group ga@ --topic nope@ --to-latest --execute"),
    Step(_G, "--reset-offsets --group ga@ --topic nope@:0 --to-latest --execute"),
    Step(_G, "--reset-offsets --group ga@ --topic tb@:9 --to-latest --execute"),
    Step(_G, "--reset-offsets --group ga@ --topic tb@ --to-latest"),
    Step(_G, "--reset-offsets --group gz@ --topic tb@ --to-latest --dry-run"),
    Step(_G, "--reset-offsets --group gz@ --topic tb@ --to-latest --execute"),
    Step(_G, "--describe --group gz@ --state --verbose"),
    Step(_G, "--delete-offsets --group ga@ --topic ta@ --topic nope@", unordered=True),
    Step(_G, "--delete-offsets --group ga@ --topic ta@"),
    Step(_G, "--delete-offsets --group ga@ --topic tb@"),
    Step(_G, "--describe --group ga@"),
    Step(_G, "--delete-offsets --group nope@ --topic tb@"),
    Step(_G, "--delete --group nope@"),
    Step(_G, "--delete --group ga@ --group nope@"),
    Step(_G, "--delete --group gz@"),
    Step(_G, "--describe --group ga@"),
)
_PROGRAMS: Final = (
    Step("topics", "--create --topic tv@ --partitions 1"),
    Step("verifiable-producer", "--topic tv@ --max-messages 5 --throughput 1000 --repeating-keys 5", unordered=True),
    Step("verifiable-share-consumer", "--topic tv@ --group-id gv@ --max-messages 5 --offset-reset-strategy earliest "
         "--acknowledgement-mode sync", unordered=True),
    Step("verifiable-share-consumer", "--topic tv@ --group-id gw@ --max-messages 5 --offset-reset-strategy earliest "
         "--acknowledgement-mode async --verbose", unordered=True),
    Step("producer-perf-test", "--topic ta@ --num-records 2000 --record-size 100 --throughput -1"),
    Step("configs", "--alter --entity-type groups --entity-name gp@ --add-config share.auto.offset.reset=earliest"),
    Step("share-consumer-perf-test", "--topic ta@ --group gp@ --num-records 2000 --timeout 60000"),
    Step("share-consumer-perf-test", "--topic ta@ --group gq@ --num-records 10 --timeout 3000"),
)  # fmt: skip
_CLUSTER: Final = (
    Step("cluster", "cluster-id"),
    Step("cluster", "list-endpoints"),
    Step("features", "describe"),
    Step("transactions", "list"),
    Step("topics", "--delete --topic ta@"),
    Step("topics", "--delete --topic tb@"),
    Step("topics", "--delete --topic tv@"),
    Step(_G, "--describe --group gv@"),
    Step("topics", "--list", own=True),
)

STEPS: Final = (
    *_TOPICS, *_CONFIGS, *_ACLS, *_RECORDS, *_GROUPS, *_MEMBERS, *_OFFSETS,
    *_PROGRAMS, *_CLUSTER,
)  # fmt: skip
