"""The Sharma et al. constraint model."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.workload import constrain, load_cluster, synthesize
from volery.workload.arrays import Reals, view
from volery.workload.constraints import BATCH_ROWS, machine_constraints, profiles, sharma2011, task_constraints
from volery.workload.description import describe_constraints


def shares(masks: array[int], bits: int = 21) -> Reals:
    """Per constraint, the share of masks that have it."""
    return np.array([((view(masks) >> k) & 1).mean() for k in range(bits)])


def test_the_model_has_21_constraints_10_clusters_and_4_types() -> None:
    model = sharma2011()
    assert [len(row) for row in model.task_frequency_percent] == [21] * 10
    assert [len(row) for row in model.cluster_weight_by_task_type] == [10] * 4
    assert len(model.machine_frequency) == 21
    assert model.machine_frequency[20] == 1
    for weights in model.cluster_weight_by_task_type:
        assert sum(weights) == pytest.approx(1)
    assert set(model.provenance) == {"origin", "task_numbers", "machine_numbers", "names", "unknown"}


def test_the_model_names_what_the_paper_names() -> None:
    """IoT 2023, section 2.3: constraint 0 is an architecture, others are about four more kinds."""
    model = sharma2011()
    assert model.names == {0: "machine architecture (c.1.1)"}
    said = {kind for kind, source in model.kinds.items() if "IoT 2023" in source}
    assert said == {
        "machine architecture",
        "platform family",
        "number of disks, minimum",
        "number of cores",
        "Ethernet speed",
    }


def test_tasks_need_each_constraint_as_often_as_the_model_says() -> None:
    """With types drawn evenly, the expected frequency is the weighted mean over types and clusters."""
    model = sharma2011()
    weights = np.array(model.cluster_weight_by_task_type).mean(axis=0)
    expected = weights @ np.array(model.task_frequency_percent) / 100
    drawn = shares(task_constraints(200_000, 1))
    noise = np.sqrt(expected * (1 - expected) / 200_000)
    assert (np.abs(drawn - expected) < 4.5 * noise).all()
    assert expected.sum() == pytest.approx(1.8545, abs=1e-3)


def test_a_task_keeps_to_one_statistical_cluster() -> None:
    """Clusters differ by a factor of two in how much they ask for, so counts vary more than independent draws would."""
    masks = task_constraints(200_000, 2)
    counts = np.array([mask.bit_count() for mask in masks])
    p = shares(masks)
    independent = float((p * (1 - p)).sum())
    assert counts.var() > independent * 1.05
    assert (counts == 0).mean() == pytest.approx(0.1431, abs=0.004)


def test_machines_satisfy_each_constraint_as_often_as_the_published_ones_and_the_last_always() -> None:
    masks = machine_constraints(50_000, 3)
    expected = np.array(sharma2011().machine_frequency)
    noise = np.sqrt(expected * (1 - expected) / 50_000)
    assert (np.abs(shares(masks) - expected) <= 4.5 * noise).all()
    assert all(mask >> 20 == 1 for mask in masks)


def test_every_cluster_of_machines_has_profile_a_b_or_c_whole() -> None:
    """arXiv 2103.08413, section V: "each cluster has been generated with machine constraint probabilities of one"."""
    a, b, c = profiles(np.array([0.5, 0.2, 1.0]), 2.0)
    assert np.allclose([a, b, c], [[0.5, 0.2, 1], [2 / 3, 1 / 9, 1], [1 / 3, 1 / 3, 1]])
    known, masks, found = np.array(sharma2011().machine_frequency), machine_constraints(50_000, 3, 8.0), set()
    for low in range(0, 50_000, 5_000):
        apart = np.abs(profiles(known, 8.0) - shares(masks[low : low + 5_000])).max(axis=1)
        assert apart.min() < 0.05 < np.sort(apart)[1]
        found.add(int(apart.argmin()))
    assert found == {0, 1, 2}


def test_more_tasks_or_machines_leave_the_first_ones_as_they_were() -> None:
    long = task_constraints(BATCH_ROWS * 2 + 77, 5)
    for count in (1, 1_000, BATCH_ROWS, BATCH_ROWS + 1):
        assert task_constraints(count, 5) == long[:count]
    assert machine_constraints(100, 5) == machine_constraints(900, 5)[:100]


def test_constraints_depend_on_the_seed_and_nothing_else() -> None:
    trace = synthesize("syn:50x20")
    once, again, other = (
        constrain(trace, "sharma2011", 1),
        constrain(trace, "sharma2011", 1),
        constrain(trace, "sharma2011", 2),
    )
    assert once == again
    assert once.constraints != other.constraints
    assert machine_constraints(1_000, 1) != task_constraints(1_000, 1)
    assert (once.arrival_us, once.duration_us, once.first) == (trace.arrival_us, trace.duration_us, trace.first)


def test_no_model_leaves_the_trace_alone() -> None:
    trace = synthesize("syn:1x2")
    assert constrain(trace, "none", 1) is trace


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"constraints: .*did you mean 'sharma2011'"):
        constrain(synthesize("syn:1x2"), "sharma", 1)
    with pytest.raises(InputError, match="constraints: "):
        load_cluster(5, constraints="sharma11")


def test_few_tasks_fit_no_machine_and_they_are_counted() -> None:
    """The published population leaves about one task in 25,000 without a machine."""
    trace = constrain(synthesize("syn:200x1000"), "sharma2011", 4)
    use = describe_constraints(trace, load_cluster(10_000, constraints="sharma2011", seed=4))
    assert use is not None
    assert 0 < use.unsatisfiable_tasks < 60
    assert use.eligible_share == pytest.approx(0.406, abs=0.01)
