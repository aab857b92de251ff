"""Examples that are packages of their own, found as if they were installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def install(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `pip install ./examples/EXAMPLE` leaves behind, on the path of this test alone; returns its folder."""
    source = EXAMPLES / example
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    record = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = sorted(project["entry-points"].items())
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items()) for group, found in groups
    ]
    (record / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(source)
    monkeypatch.syspath_prepend(folder)
    return source
