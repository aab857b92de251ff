"""Delays as ratios to those of one architecture, the baseline, within each setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.report.groups import RunGroup, by_setting
from volery.report.units import NOTHING, digits

STATISTICS: Final = ("p50", "mean", "p90", "p99", "max")
RATIO_HEADS: Final = ("median", "mean", "p90", "p99", "max")
RATIO_NOTE: Final = "Ratio: a statistic of delay over that of the baseline in the same setting, both means over seeds."


def ratio_rows(groups: Sequence[RunGroup], baseline: str) -> list[list[str]]:
    """Label, class of jobs and ratios of all others, setting by setting.

    Args:
        groups: of the study.
        baseline: a label without its setting.
    """
    rows = []
    for setting, members in by_setting(groups):
        own = f"{baseline} [{setting}]" if setting else baseline
        base = next((group for group in members if group.label == own), None)
        for group in members if base is not None else ():
            if group is base or base is None:
                continue
            for place, jobs in enumerate(group.classes()):
                delays = (group.delay_s(jobs), base.delay_s(jobs))
                cells = [
                    _ratio(*(None if one is None else getattr(one, name) for one in delays)) for name in STATISTICS
                ]
                rows.append([group.label if not place else "", jobs, *cells])
    return rows


def _ratio(value: float | None, base: float | None) -> str:
    return NOTHING if value is None or not base or base < 0 or value < 0 else digits(value / base)
