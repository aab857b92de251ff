"""How near to their input tasks ran, and what of a workload a design ignored: rows and lines under the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.report.groups import RunGroup
from volery.report.units import percent

LOCALITY_HEADS: Final = ("node", "rack", "any", "node, by job")
LOCALITY_NOTE: Final = (
    "Locality: share of the tasks that ran on a machine that holds their input, in a rack that does, elsewhere. By "
    "job: mean over jobs of the share of their tasks on such a machine."
)


def locality_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `LOCALITY_HEADS`, of the groups whose tasks have input that lies somewhere."""
    rows = []
    for group in groups:
        found = [run.locality for run in group.runs if run.locality is not None]
        if found:
            shares = [(one.node, one.rack, one.any, one.node_by_job) for one in found]
            rows.append([group.label, *(percent(sum(column) / len(found)) for column in zip(*shares, strict=True))])
    return rows


def ignorance_lines(groups: Sequence[RunGroup]) -> list[str]:
    """A line per group: which features of its workload the design ignored, and which the driver kept for it."""
    lines = []
    for group in groups:
        ignored = list(dict.fromkeys(feature for run in group.runs for feature in run.ignores))
        kept = list(dict.fromkeys(feature for run in group.runs for feature in run.kept_by_driver))
        told = [f"ignores {', '.join(ignored)}"] if ignored else []
        told += [f"leaves {', '.join(kept)} to the driver"] if kept else []
        told += ["does not declare what it heeds"] if any(not run.declares for run in group.runs) else []
        if told:
            lines.append(f"{group.label}: of this workload it {'; '.join(told)}.")
    return lines
