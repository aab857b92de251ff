"""How near to their input tasks ran, and what of a workload a design ignored: rows and lines under the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.metrics import LocalitySummary
from volery.report import means
from volery.report.groups import RunGroup, shortened
from volery.report.means import Column
from volery.report.units import percent

LOCALITY_HEADS: Final = ("node", "rack", "any", "node, by job")
LOCALITY_NOTE: Final = (
    "Locality: share of the tasks that ran on a machine that holds their input, in a rack that does, elsewhere. By "
    "job: mean over jobs of the share of their tasks on such a machine."
)
_LOCALITY: Final[Sequence[Column[LocalitySummary]]] = (
    (lambda one: one.node, percent),
    (lambda one: one.rack, percent),
    (lambda one: one.any, percent),
    (lambda one: one.node_by_job, percent),
)


def locality_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `LOCALITY_HEADS`, of the groups whose tasks have input that lies somewhere."""
    return means.rows(groups, lambda run: run.locality, _LOCALITY)


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
            lines.append(f"{shortened(group.label)}: of this workload it {'; '.join(told)}.")
    return lines
