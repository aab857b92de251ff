"""Maps of columns: what is wrong in one is refused with its key and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.workload.formats.columns import SHIPPED, map_text, named_map
from volery.workload.formats.columns.maps import parsed_map, read_map

COLUMNS = '[columns]\njob = "id"\nsubmit = "came"\nstart = "begun"\nend = "ended"\n'


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("[columns\n", ":1", "is not TOML"),
        (COLUMNS + 'job = "other"\n', ":6", "overwrite a value .*; name each target once"),
        ("[column]\njob = 1\n", "", "missing required field columns|unknown field column"),
        (COLUMNS + 'nmber = "n"\n', "columns.nmber", "is no target; known are array, "),
        (COLUMNS + 'core = "n"\n', "columns.core", "is no target; did you mean 'cores'"),
        (COLUMNS + "cores = 4\n", "columns.cores", 'write a name, or a table as {column = "NAME"'),
        (COLUMNS + 'cores = { column = "n", units = "one" }\n', "columns.cores", "unknown field units"),
        (COLUMNS + 'limit = { column = "l", unit = "hours" }\n', "columns.limit.unit", "'hours' is no unit; .* h, d"),
        (COLUMNS + 'user = { column = "u", unit = "s" }\n', "columns.user.unit", "has none; leave it out"),
        (COLUMNS + 'limit = { column = "l", format = "%H" }\n', "columns.limit.format", "is for submit, start and end"),
        (COLUMNS + 'wait = { column = "l", per = "node" }\n', "columns.wait.per", "is for cores, devices and memory"),
        (COLUMNS + 'user = { column = "l", function = "slrm-gpus" }\n', "columns.user.function", "'slurm-gpus'"),
        (COLUMNS + 'user = { column = "l", pattern = "(" }\n', "columns.user.pattern", "is no regular expression"),
        (COLUMNS + 'user = { column = "l", pattern = "a" }\n', "columns.user.pattern", "has not one group"),
        (COLUMNS.replace("came\"", 'came", format = "%Q" }').replace('submit = "', 'submit = { column = "'),
         "columns.submit.format", "'%Q' is no format of a time .*; write one as %d.%m.%Y"),
        (COLUMNS.replace('job = "id"\n', ""), "columns", "lacks job, the id of a job"),
        ('[columns]\njob = "id"\nend = "e"\n', "columns", "lacks submit and start"),
        ('[columns]\njob = "id"\nsubmit = "s"\n', "columns", "lacks end and runtime"),
        ('[columns]\njob = "id"\nsubmit = "s"\nend = "e"\n', "columns", "lacks start, from which a job runs"),
        (COLUMNS + '[source]\nzone = "Mars/Olympus"\n', "source.zone", "'Mars.*' is no time zone .* Europe/Berlin"),
        (COLUMNS + '[source]\nzone = "+99:00"\n', "source.zone", "'\\+99:00' is no time zone"),
        (COLUMNS + '[source]\nform = "csv"\n', "source.form", "'csv' is no form; known are ads, json, json-lines"),
        (COLUMNS + '[source]\nseparator = "::"\n', "source.separator", "'::' is not one character"),
        (COLUMNS + '[source]\nbegins = "("\n', "source.begins", "is no regular expression"),
        (COLUMNS + '[source]\ndecimal = ";"\n', "source.decimal", "invalid enum value"),
        (COLUMNS + '[states]\nfinished = ["ok"]\n', "states", "belong together; map state"),
        (COLUMNS + 'state = "s"\n', "states", "belong together; name its words"),
        (COLUMNS + 'state = "s"\n[states]\nran = ["ok"]\n', "states.ran", "is no status; .*"),
        (COLUMNS + 'rack = "r"\n', "columns.rack", "is for jobs whose tasks run only together; map nodes or tasks"),
        (COLUMNS + '[[filter]]\ncolumn = "c"\n', r"filter\[0\]", "has neither keep nor drop"),
    ],
)  # fmt: skip
def test_a_wrong_map_is_refused_with_its_key(text: str, place: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"^m.toml(: )?{place}: .*({problem})"):
        parsed_map(text, "m.toml")


def test_a_map_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        read_map(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"^columns: 'sact' is neither a shipped map; did you mean 'sacct'"):
        named_map("sact")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_map_is_sound_and_says_what_it_leaves_out(name: str) -> None:
    shipped_map = parsed_map(map_text(name), name)
    assert shipped_map.name == name
    assert shipped_map.remarks
    assert shipped_map.title
    source = shipped_map.source
    assert source.header or source.begins or source.kinds or source.form == "ads", (
        "it is chosen by the beginning of a file"
    )
