"""A file that cannot be used is named with its line; a value that does not fit is named with its key."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from volery.core.errors import InputError
from volery.live.config.tables import misfit, read_table


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a file."""

    name: str
    kind: Literal["small", "large"] = "small"


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    """A file."""

    parts: tuple[Part, ...]
    count: int = 0


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        (b"a = 1\nb = [\n", "file.toml:", "is not TOML"),
        (b"a = \xff\n", "file.toml", "is not UTF-8 text"),
        (None, "file.toml", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path: Path, content: bytes | None, place: str, problem: str) -> None:
    path = tmp_path / "file.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert caught.value.place.startswith(str(tmp_path / place))
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("table", "place", "problem"),
    [
        ({"count": 1}, "file.parts", "is missing"),
        ({"parts": [], "cuont": 1}, "file.cuont", "unknown key; did you mean 'count'"),
        ({"parts": [{"name": "a", "knid": "small"}]}, "file.parts[0].knid", "unknown key; did you mean 'kind'"),
        ({"parts": [{"name": "a"}, {"name": 5}]}, "file.parts[1].name", "expected str, got int"),
        ({"parts": [{"name": "a", "kind": "huge"}]}, "file.parts[0].kind", "invalid enum value 'huge'; allowed are"),
        ({"parts": [], "count": "x"}, "file.count", "expected int, got str"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_key(table: dict[str, object], place: str, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(table, Whole)
    found = misfit(caught.value, "file", Whole)
    assert found.place.startswith(place.rsplit("[", 1)[0])
    assert problem in found.problem
