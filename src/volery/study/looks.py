"""Studies that add seeds until their comparisons are decided: the next look, the budget, and the reason of the end.

The comparisons that decide are those of median, mean and p99 delay of all jobs, of the baseline with each other
architecture in each setting. A comparison is decided at a look when its interval excludes "no difference", with the
confidence of that look and after Holm's correction; when every pair of values is equal; or when nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from volery.report.schema import BUDGET, DECIDED, LIMIT, Reason, StudyEnd, StudyLook
from volery.statistics import IDENTICAL, NOT_RANDOM, ComparedMeans
from volery.study.plan import PlannedRun
from volery.study.spec import StudySpec
from volery.study.writer import ResultsWriter

DECIDING: Final = frozenset({"median delay", "mean delay", "p99 delay"})


def deciding(compared: Sequence[ComparedMeans]) -> list[ComparedMeans]:
    """The comparisons that decide when a study stops."""
    return [one for one in compared if one.jobs == "all" and one.quantity in DECIDING]


def is_decided(compared: ComparedMeans) -> bool:
    """True if more seeds are not needed to tell the two apart, or cannot."""
    return compared.difference.is_shown or compared.difference.verdict in (IDENTICAL, NOT_RANDOM)


def by_seed(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs seed by seed, so that a budget that ends leaves as many whole seeds as it can."""
    return sorted(runs, key=lambda run: run.spec.seed)


def grown(keep: ResultsWriter) -> StudySpec | None:
    """The study with the seeds of its next look; None where it adds none.

    It adds none where its seeds are given, a budget has ended, every comparison is decided, or the limit is reached.
    """
    study = keep.study
    if not study.auto or not is_whole(keep) or len(study.seeds) >= study.auto.seeds_max:
        return None
    return with_count(study, len(study.seeds) + 1) if undecided(keep.differences()) else None


def undecided(compared: Sequence[ComparedMeans]) -> int:
    """The number of comparisons that decide when to stop, and are not decided."""
    return sum(not is_decided(one) for one in deciding(compared))


def with_count(study: StudySpec, seeds: int) -> StudySpec:
    """The study with the seeds of the first look at or after a number of seeds."""
    assert study.auto, "a study whose seeds are given has no looks"
    return msgspec.structs.replace(study, seeds=tuple(range(study.auto.look_from(seeds))))


def may_begin(keep: ResultsWriter) -> bool:
    """True while the runs of a study have not used up its budget; always true without one."""
    budget_s = keep.study.auto.budget_s if keep.study.auto else None
    return budget_s is None or sum(stored.summary.cpu_s for stored in keep.done.values()) < budget_s


def is_whole(keep: ResultsWriter) -> bool:
    """True if every run of the study is finished."""
    return all(run.key in keep.done for run in keep.planned)


def whole_seeds(keep: ResultsWriter) -> StudySpec:
    """The study with the seeds before the first of which a run is missing; with one seed where there is none.

    The look at these seeds is remembered.
    """
    lacking = {run.spec.seed for run in keep.planned if run.key not in keep.done}
    count = max(min(lacking, default=len(keep.study.seeds)), 1)
    auto = keep.study.auto.ended_at(count) if keep.study.auto else keep.study.auto
    return msgspec.structs.replace(keep.study, seeds=tuple(range(count)), auto=auto)


def study_end(keep: ResultsWriter, baseline: str = "") -> StudyEnd:
    """The end of a study that adds seeds: its reason, and all looks.

    Args:
        keep: every run of the study is finished.
        baseline: label of the architecture that the others were compared with; empty: the study's.
    """
    auto, count = keep.study.auto, len(keep.study.seeds)
    assert auto, "a study whose seeds are given has no reason to stop"
    looks = auto.looks_of(count)
    counts = [one for one in looks.counts if one <= count]
    found = [deciding(keep.differences(one, baseline)) for one in counts]
    told = [
        StudyLook(one, looks.confidence_at(one), undecided=undecided(at)) for one, at in zip(counts, found, strict=True)
    ]
    reason: Reason = DECIDED if not told[-1].undecided else LIMIT if count >= auto.seeds_max else BUDGET
    against = baseline or keep.study.baseline or keep.study.choices()[0].label
    return StudyEnd(reason, against, len(found[-1]), tuple(told), auto.seeds_max, auto.budget_s)
