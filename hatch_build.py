"""Writes the protobuf modules of `protos/kip932` beside their .proto files.

One function, `generate`, serves three callers: hatchling on build and on editable install, `make protos` (which runs
this file), and the packaging test that regenerates into a temporary folder and compares. Generated modules are
git-ignored.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "protos"
PACKAGE = "kip932"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
# Servicers are asyncio only, and may omit methods, which then return UNIMPLEMENTED.
GRPC_STUB_OPTIONS = "quiet,only_async,generate_concrete_servicer_stubs"


class ProtobufBuildHook(BuildHookInterface[Any]):
    """Runs `generate` before hatchling collects the files of a wheel, an sdist or an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the modules; `version` and `build_data` come from hatchling and are not changed."""
        del version, build_data
        generate(Path(self.root))


def generate(root: Path, into: Path | None = None) -> list[Path]:
    """Write the modules of every .proto below `root`/protos into the folder `into` (default: beside the .proto files).

    Each file is replaced in one step and only when its content changed, so a process that imports it meanwhile never
    sees a half-written one. Modules whose .proto is gone are removed. Returns what was written or removed. Raises
    RuntimeError when the compiler refuses a file; its own message is on stderr.
    """
    sources = root / SOURCES
    target = into or sources
    with tempfile.TemporaryDirectory(prefix="kip932-") as folder:
        fresh = Path(folder)
        _compile(sources, fresh)
        changed = [_replace(path, target / path.relative_to(fresh)) for path in _generated(fresh)]
        for path in _generated(target / PACKAGE):
            if not (fresh / path.relative_to(target)).exists():
                path.unlink()
                changed.append(path)
    changed += [_write_init(path) for path in sorted({path.parent for path in _generated(target)})]
    return [path for path in changed if path is not None]


def _compile(sources: Path, out: Path) -> None:
    # Imported here: hatchling also loads this file when it only asks for metadata.
    from grpc_tools import protoc  # noqa: PLC0415 - see the comment above

    names = sorted(path.relative_to(sources).as_posix() for path in (sources / PACKAGE).rglob("*.proto"))
    well_known = Path(protoc.__file__).parent / "_proto"
    paths = [f"--proto_path={sources}", f"--proto_path={well_known}"]
    steps = [
        (names, [f"--python_out={out}", f"--mypy_out=quiet:{out}"]),
        (
            [name for name in names if name.endswith("_service.proto")],
            [f"--grpc_python_out={out}", f"--mypy_grpc_out={GRPC_STUB_OPTIONS}:{out}"],
        ),
    ]
    with _interpreter_folder_on_path():
        for files, outputs in steps:
            if protoc.main(["protoc", *paths, *outputs, *files]) != 0:
                raise RuntimeError(f"protoc refused a file below {sources}; its message is above. Try: buf lint")


@contextmanager
def _interpreter_folder_on_path() -> Iterator[None]:
    # protoc looks up its plug-ins on PATH, and outside an activated environment protoc-gen-mypy is not there.
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _generated(folder: Path) -> list[Path]:
    return sorted(path for pattern in GENERATED for path in folder.rglob(pattern))


def _replace(source: Path, target: Path) -> Path | None:
    content = source.read_bytes()
    if target.exists() and target.read_bytes() == content:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.{os.getpid()}")
    new.write_bytes(content)
    new.replace(target)
    return target


def _write_init(folder: Path) -> Path | None:
    path = folder / "__init__.py"
    if path.exists():
        return None
    path.write_text('"""Messages generated from the .proto files in this folder; see hatch_build.py."""\n')
    return path


if __name__ == "__main__":
    for changed_path in generate(Path(__file__).resolve().parent):
        print(changed_path)
