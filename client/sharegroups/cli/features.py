"""`sharegroups features`: prints the level of each share-group feature on each node (CT-99)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from kip932.errors import KafkaError
from sharegroups.admin_values import ConfigEntry, ConfigResource
from sharegroups.cli.columns import legend
from sharegroups.cli.output import (
    connection_options,
    failures,
    finish,
    output_option,
    print_json,
    print_stderr,
    print_table,
    settings,
)
from sharegroups.cli.reaching import open_reachable_admin

#: The features that nodes report, each as a config of that node.
_NAMES: Final = ("share.version",)


@click.command(epilog=legend("sharegroups features"))
@connection_options
@output_option
def features(bootstrap_server: str, command_config: Path | None, output: str) -> None:
    """Show the level of each share-group feature on each node.

    A level is a setting of a node, share.version, and changes when the node restarts. The cluster as a whole has no
    level, there is nothing to upgrade or downgrade, and nodes do not report which levels they support. Nodes that
    differ are listed on standard error.
    """
    given = settings(bootstrap_server, command_config)
    with failures("Describing features"), open_reachable_admin(given) as admin:
        nodes = [ConfigResource.broker(str(node.node_id)) for node in admin.describe_cluster().nodes]
        found = admin.describe_configs(nodes, documentation=True) if nodes else {}
    errors = {node.name: configs for node, configs in found.items() if isinstance(configs, KafkaError)}
    levels = [
        (name, int(node.name), configs[name])
        for name in _NAMES
        for node, configs in sorted(found.items(), key=lambda item: int(item[0].name))
        if isinstance(configs, Mapping) and name in configs
    ]
    if output == "json":
        print_json([_document(*level) for level in levels])
    elif levels:
        rows = [(name, node, entry.value or "-", entry.documentation or "-") for name, node, entry in levels]
        print_table(("FEATURE", "NODE", "LEVEL", "MEANING"), rows, (15, 6, 6, 0))
    for name in _NAMES:
        if len({entry.value for each, _, entry in levels if each == name}) > 1:
            print_stderr(f"Warning: nodes have {name} at different levels; what a call does depends on its node.")
    if not levels and not errors:
        print_stderr(f"No node reports a level of {', '.join(_NAMES)}.")
    for node, error in errors.items():
        print_stderr(f"Error: node {node}: {error.name}: {error.message}")
    finish(not errors)


def _document(name: str, node: int, entry: ConfigEntry) -> dict[str, object]:
    level = int(entry.value) if entry.value is not None and entry.value.isdecimal() else None
    return {"feature": name, "node": node, "level": level, "meaning": entry.documentation}
