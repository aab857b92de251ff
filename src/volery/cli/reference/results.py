"""The page of a results folder: its files and the columns of its tables; and with which status commands end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from volery.cli.reference.structs import cell, keys, summary
from volery.look.markdown import table

ERRORS: Final = (
    'With `--json` what is wrong is one object, `{"error": {"place": .., "problem": ..}}`. *place* is the option, the '
    "file and key, or the line; *problem* says what is wrong and what to write instead. Without it the same stands on "
    "standard error as `error: PLACE: PROBLEM`."
)


def results() -> Iterator[str]:
    """Files, columns, the manifest, statuses."""
    from volery.cli.main import STATUSES
    from volery.report.schema import COLUMNS, FILES, FinishedRun, TraceFacts
    from volery.study.results import StudyManifest
    from volery.study.spec import StudySpec
    from volery.workload.table import SCHEMA, TaskRow

    yield from ("# Results and statuses", "", "## Files of a results folder", "")
    yield from table(("file", "what it holds"), [(f"`{name}`", said) for name, said in FILES.items()])
    yield "Measures of `summary.json`: [measures](measures.md)."
    yield ""
    for name, columns in COLUMNS.items():
        yield from (f"### {name}", "")
        yield from table(("column", "meaning"), [(f"`{column}`", said) for column, said in columns.items()])
    for struct in (StudyManifest, FinishedRun, StudySpec, TraceFacts):
        yield from (f"### manifest.json: `{struct.__name__}`", "", cell(summary(struct)), "")
        yield from table(("key", "type", "default", "meaning"), keys(struct))
    yield from (
        "## Columns of the trace table",
        "",
        "What they mean at length: [the trace table](../trace-table.md).",
        "",
    )
    told = {row[0].strip("`"): row[3] for row in keys(TaskRow)}
    rows = [(f"`{field.name}`", f"`{field.type}`".replace("<", "("), told[field.name]) for field in SCHEMA]
    yield from table(("column", "type", "meaning"), [(a, b.replace(">", ")"), c) for a, b, c in rows])
    yield from ("## Exit statuses", "")
    yield from table(("status", "when"), [(f"`{status}`", said) for status, said in STATUSES.items()])
    yield from (ERRORS, "")
