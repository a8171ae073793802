"""Writes docs/reference from the declarations in the code, the only place where a setting is described.

`settings.md` has the services' settings, `client-settings.md` the clients', `api.md` the Python API, `columns.md` the
meaning of the columns in the tables of the command line, and `metrics.md` all metrics. Parts of docs/pipeline.md are
made by `pipeline_page`, the list of RPCs in `protocol.md` by `protocol_page`.
`python -m tools.reference --write` writes the pages; with `--check` the exit status says whether they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kip932.setting import Setting
from shard_runtime.config.kafka_configs import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from shard_runtime.config.process_settings import NODE_SETTINGS
from sharegroups import config as client
from sharegroups.cli import columns
from tools import pipeline_page, protocol_page
from tools.api_page import api_page
from tools.metrics_page import metrics_page

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "reference"
_INTRODUCTION = """# Settings

Made from the declarations by `make docs`; do not edit. A process reads its settings from flags (`name=value`, or
`--set name=value` of `sharegroups up`), from the environment (`SHAREGROUPS_…`), and from a TOML file named by
`SHAREGROUPS_CONFIG` or `--config`; the first that has one wins. Group and topic configs are changed while running, with
`sharegroups configs alter` or IncrementalAlterConfigs. The clients' settings have
[a page of their own](client-settings.md).
"""
_CLIENT_INTRODUCTION = """# Settings of the clients

Made from the declarations by `make docs`; do not edit. A client takes them as a dict, `Producer({"client.id": "a"})`,
or as keywords with `_` for `.`, `Producer(client_id="a")`; the command line takes them in the file of
`--command-config`, one `name=value` per line, and as `--command-property` of `consume` or `--property` of `produce`. An
unknown name, and a value out of its range, is refused. The services' settings have
[a page of their own](settings.md).
"""


def settings_page() -> str:
    """Return the page of the services' settings."""
    parts = [_INTRODUCTION]
    parts += _section("Process", NODE_SETTINGS.values(), environment=True)
    parts += _section("Cluster (Kafka's broker configs)", BROKER_CONFIGS.values(), environment=True)
    parts += _section("Groups", GROUP_CONFIGS.values(), environment=False)
    parts += _section("Topics", TOPIC_CONFIGS.values(), environment=False)
    return "\n".join(parts)


def client_settings_page() -> str:
    """Return the page of the clients' settings."""
    common = {setting.name for setting in client.COMMON}
    parts = [_CLIENT_INTRODUCTION]
    parts += _client_section("All clients; the admin client has no others", client.COMMON)
    parts += _client_section("Share consumer", [one for one in client.CONSUMER if one.name not in common])
    refused = ", ".join(f"`{name}`" for name in sorted(client.REFUSED))
    parts += [f"Refused, because they belong to ordinary consumer groups: {refused}.", ""]
    parts += _client_section("Producer", [one for one in client.PRODUCER if one.name not in common])
    return "\n".join(parts)


PAGES: Final[dict[Path, Callable[[], str]]] = {
    FOLDER / "settings.md": settings_page,
    FOLDER / "client-settings.md": client_settings_page,
    FOLDER / "api.md": api_page,
    FOLDER / "columns.md": columns.page,
    FOLDER / "metrics.md": metrics_page,
    protocol_page.PAGE: protocol_page.protocol_page,
    pipeline_page.PAGE: pipeline_page.pipeline_page,
}


def _section(title: str, settings: Iterable[Setting[Any]], environment: bool) -> list[str]:
    rows = []
    for setting in sorted(settings, key=lambda one: one.name):
        unit = f" {setting.unit}" if setting.unit else ""
        default = f"`{setting.text(setting.default)}`{unit}" if setting.text(setting.default) else "empty"
        if setting.synonym:
            default = f"that of `{setting.synonym}`"
        name = f"`{setting.name}`" + (f"<br>`{setting.environment}`" if environment else "")
        rows.append((name, default, setting.range_text, setting.doc))
    return _table(title, rows)


def _client_section(title: str, settings: Iterable[Setting[Any]]) -> list[str]:
    rows = []
    for setting in sorted(settings, key=lambda one: one.name):
        default = setting.text(setting.default)
        rows.append((f"`{setting.name}`", f"`{default}`" if default else "none", setting.range_text, setting.doc))
    return _table(title, rows)


def _table(title: str, rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"## {title}", "", "| Name | Default | Range | Meaning |", "|---|---|---|---|"]
    return [*lines, *(f"| {' | '.join(row)} |".replace("  ", " ") for row in rows), ""]


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages. Returns 0 if they are right, 1 if not, 2 for wrong usage."""
    if arguments == ["--write"]:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for path, page in PAGES.items():
            path.write_text(page(), encoding="utf-8")
        return 0
    if arguments == ["--check"]:
        stale = [
            path for path, page in PAGES.items() if not path.exists() or path.read_text(encoding="utf-8") != page()
        ]
        return 1 if stale else 0
    print("give --write or --check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
