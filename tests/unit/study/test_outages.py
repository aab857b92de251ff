"""Groups of machines that crash together."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.comparison import compare

from volery.architectures import configure, lookup
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.study.outages import outage_plan


def deployed(**parameters: str) -> Deployment:
    pipeline = lookup("pipeline")
    return pipeline.build(Cluster.uniform(10), configure(pipeline, parameters), Streams(0))


def test_neighbours_crash_and_restart_together_at_the_rate_of_single_machines() -> None:
    hour = 3600 * SECOND
    plan = outage_plan("group=4,every=600,down=30", deployed(T11="restart"), 1, 10 * hour)
    together = Counter((crash.at_us, crash.back_us) for crash in plan.crashes)
    assert set(together.values()) == {4, 2}, "ten machines are two groups of four and one of two"
    alone = outage_plan("group=1,every=600,down=30", deployed(T11="restart"), 1, 10 * hour)
    assert len(plan.crashes) == pytest.approx(len(alone.crashes), rel=0.2)
    assert plan == outage_plan("group=4,every=600,down=30", deployed(T11="restart"), 1, 10 * hour)


@pytest.mark.parametrize(
    ("text", "given", "problem"),
    [
        ("group=0", "restart", "whole number from 1"),
        ("size=4", "restart", "no such key"),
        ("group=2", "none", "bears no crash"),
    ],
)
def test_what_is_wrong_is_named(text: str, given: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        outage_plan(text, deployed(T11=given), 0, SECOND)


def test_a_study_runs_with_outages_and_finishes_every_job() -> None:
    given = {"trace": "poisson:load=0.5,workers=10,jobs=60", "workers": 10}
    (run,) = compare("pipeline:T11=restart", outages="group=5,every=20,down=5", variability="period=1", **given).runs  # type: ignore[arg-type]  # fields of a setting
    assert run.jobs == 60
    assert run.counters["attempts_lost"] > 0


def test_outages_beside_crashes_by_name_are_refused() -> None:
    with pytest.raises(InputError, match="give one of the two"):
        compare("megha:reliable=true,gms=2,lms=2", trace="syn:2x2", workers=20, outages="group=2", crashes="gm/0@1+1")
