"""What a task cost the schedulers, from the counters of its runs."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.report.samples import sample_run, spread

from volery.report.groups import group_runs
from volery.report.units import NOTHING
from volery.report.work import is_counted, work


def test_counters_are_told_per_task_and_averaged_over_seeds() -> None:
    found = {one.label: one for one in work(group_runs(spread(5)))}
    sparrow = found["sparrow"]
    assert sparrow.probes_per_task == pytest.approx(2.0)
    assert sparrow.stolen_probes_per_task == pytest.approx(0.2)
    assert sparrow.blocked_s_per_task == pytest.approx(3e9 / 1e6 / 500_000)
    assert sparrow.queue_mean == pytest.approx(3.5)
    assert (sparrow.queue, sparrow.queue_max) == ("reservations", 17.0)
    assert found["megha"].queue == "tasks"
    assert found["megha"].probes_per_task is None
    assert found["megha"].cells == ["4.00", NOTHING, NOTHING, "3.50", "17.0", NOTHING]


def test_a_seed_without_a_counter_that_another_has_counts_as_zero() -> None:
    stolen = msgspec.structs.replace(sample_run("hawk", 0), counters={"stolen_probes": 1e6})
    quiet = msgspec.structs.replace(sample_run("hawk", 1), counters={})
    (found,) = work(group_runs([stolen, quiet]))
    assert found.stolen_probes_per_task == pytest.approx(1.0)


def test_without_probes_and_queues_there_is_nothing_to_tell() -> None:
    run = msgspec.structs.replace(sample_run(), counters={"inconsistencies": 3.0})
    assert not is_counted(work(group_runs([run])))
    assert is_counted(work(group_runs(spread(1))))
