"""The pages of files: those that Volery reads, key by key, and those of a results folder; statuses of commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from docs.pages.structs import cell, keys, structs_in, summary
from volery.look.text import markdown_table

HEADS: Final = ("key", "type", "default", "meaning")
ERRORS: Final = (
    'With `--json` what is wrong is one object, `{"error": {"place": .., "problem": ..}}`. *place* is the option, the '
    "file and key, or the line; *problem* says what is wrong and what to write instead. Without it the same stands on "
    "standard error as `error: PLACE: PROBLEM`."
)


def files() -> Iterator[str]:
    """Every key of the files that Volery reads."""
    yield from (
        "# Files",
        "",
        "Keys of the files that Volery reads (TOML, or JSON by the name), from the structs that they are read into.",
        "",
    )

    yield "Names of keys end in their unit: `_s` seconds, `_us` microseconds, `_mb` 2^20 bytes, `_mbps` Mbit/s."
    yield "A default that is empty means that nothing is said. What is not a key here is refused with its place."
    yield ""
    yield from _study()

    for title, use, struct in described():
        yield from (f"## {title}", "", use, "")
        yield from markdown_table(HEADS, keys(struct))
        for inner_struct in structs_in(struct):
            yield from (f"### {title}: `{inner_struct.__name__}`", "", cell(summary(inner_struct)), "")
            yield from markdown_table(HEADS, keys(inner_struct))
        if title == "federation.toml":
            yield from _machines()


def described() -> Sequence[tuple[str, str, type[msgspec.Struct]]]:
    """Files beside a study's: name, what for, and what they are read into."""
    from volery.core.costs import CostModel
    from volery.faults import Schedule
    from volery.live.config.client_file import ClientFile
    from volery.live.config.federation import FederationFile
    from volery.live.jobs import JobDescription
    from volery.sim.faults import FaultPlan
    from volery.workload.models import RequestModel

    return (
        ("federation.toml", "For `volery up` and `volery serve`.", FederationFile),
        ("job.toml", "For `volery submit`, `volery plan`, the API and the Python clients.", JobDescription),
        (
            "client.toml",
            "In `$XDG_CONFIG_HOME/volery` or `~/.config/volery`, for commands and clients of a federation.",
            ClientFile,
        ),
        ("costs.toml", "What work costs: `volery calibrate` writes it, `--costs` and `[network]` read it.", CostModel),
        ("requests.toml", "What tasks ask for, for `--requests`.", RequestModel),
        (
            "scenario.json: plan",
            "Faults of a storm: `volery storm -o` writes a scenario, `--scenario` reads it.",
            FaultPlan,
        ),
        ("schedule.json", "Faults of a live federation, or of the lab: `volery storm --schedule`.", Schedule),
    )


def _study() -> Iterator[str]:
    from volery.setting import Setting, StudyOptions
    from volery.study.file import TABLES
    from volery.study.spec import ArchitectureChoice

    yield from (
        "## STUDY.toml",
        "",
        "For `volery run`. Under `[axes]` each of these keys may have a list of values; all are combined.",
        "",
    )
    section_of = {key: section for section, names in TABLES.items() if section != "axes" for key in names}

    for struct in (Setting, StudyOptions):
        rows = [(f"`[{section_of.get(row[0].strip('`'), 'axes')}]`", *row) for row in keys(struct)]
        yield from markdown_table(("table", *HEADS), rows)

    yield from ("### STUDY.toml: an architecture as a table", "")
    yield from markdown_table(HEADS, keys(ArchitectureChoice))


def _machines() -> Iterator[str]:
    """The keys of [[machines]], which is a table of free attributes and has no struct."""
    from volery.live.config.federation import MACHINE_MEANINGS

    yield from ("### federation.toml: `[[machines]]`", "", "Equal machines.", "")
    yield from markdown_table(
        ("key", "meaning"), [(f"`{name}`", meaning) for name, meaning in MACHINE_MEANINGS.items()]
    )


def results() -> Iterator[str]:
    """Files, columns, the manifest, statuses."""
    from volery.cli.main import STATUSES
    from volery.report.schema import COLUMNS, FILES, FinishedRun, TraceFacts
    from volery.study.results import StudyManifest
    from volery.study.spec import StudySpec
    from volery.workload.table import SCHEMA, TaskRow

    yield from ("# Results and statuses", "", "## Files of a results folder", "")

    yield from markdown_table(("file", "what it holds"), [(f"`{name}`", meaning) for name, meaning in FILES.items()])
    yield "Measures of `summary.json`: [measures](measures.md)."
    yield ""

    for name, columns in COLUMNS.items():
        yield from (f"### {name}", "")
        yield from markdown_table(
            ("column", "meaning"), [(f"`{column}`", meaning) for column, meaning in columns.items()]
        )

    for struct in (StudyManifest, FinishedRun, StudySpec, TraceFacts):
        yield from (f"### manifest.json: `{struct.__name__}`", "", cell(summary(struct)), "")
        yield from markdown_table(("key", "type", "default", "meaning"), keys(struct))
    yield from (
        "## Columns of the trace table",
        "",
        "What they mean at length: [the trace table](../trace-table.md).",
        "",
    )

    meanings = {row[0].strip("`"): row[3] for row in keys(TaskRow)}
    rows = [(f"`{field.name}`", f"`{field.type}`".replace("<", "("), meanings[field.name]) for field in SCHEMA]
    yield from markdown_table(("column", "type", "meaning"), [(a, b.replace(">", ")"), c) for a, b, c in rows])

    yield from ("## Exit statuses", "")
    yield from markdown_table(("status", "when"), [(f"`{status}`", meaning) for status, meaning in STATUSES.items()])

    yield from (ERRORS, "")
