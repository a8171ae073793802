"""Writes docs/reference/settings.md from the declarations, the only place where a setting is described.

`python tools/reference.py --write` writes the page, `--check` says whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shard_runtime.configs import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from shard_runtime.declared import Setting
from shard_runtime.settings import NODE_SETTINGS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
_INTRODUCTION = """# Settings

Made from the declarations by `make docs`; do not edit. A process reads its settings from flags (`name=value`, or
`--set name=value` of `sharegroups up`), from the environment (`SHAREGROUPS_…`), and from a TOML file named by
`SHAREGROUPS_CONFIG` or `--config`; the first that has one wins. Group and topic configs are changed while running, with
IncrementalAlterConfigs.
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    parts += _section("Process", NODE_SETTINGS.values(), environment=True)
    parts += _section("Cluster (Kafka's broker configs)", BROKER_CONFIGS.values(), environment=True)
    parts += _section("Groups", GROUP_CONFIGS.values(), environment=False)
    parts += _section("Topics", TOPIC_CONFIGS.values(), environment=False)
    return "\n".join(parts)


def _section(title: str, settings: Iterable[Setting[Any]], environment: bool) -> list[str]:
    lines = [f"## {title}", "", "| Name | Default | Range | Meaning |", "|---|---|---|---|"]
    for setting in sorted(settings, key=lambda one: one.name):
        unit = f" {setting.unit}" if setting.unit else ""
        default = f"`{setting.text(setting.default)}`{unit}" if setting.text(setting.default) else "empty"
        if setting.synonym:
            default = f"that of `{setting.synonym}`"
        name = f"`{setting.name}`" + (f"<br>`{setting.environment}`" if environment else "")
        lines.append(f"| {name} | {default} | {setting.range_text} | {setting.doc} |".replace("  ", " "))
    return [*lines, ""]


def main(arguments: Sequence[str]) -> int:
    """Write or check the page."""
    if arguments == ["--write"]:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if arguments == ["--check"]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1
    print("give --write or --check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
