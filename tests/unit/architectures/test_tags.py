"""Designs and tags: combinations that have no meaning are refused, and each kind of decision heeds them."""

from __future__ import annotations

import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.capabilities import TagPlacement
from volery.core.errors import InputError
from volery.core.model import Cluster, TagConstraint
from volery.core.streams import Streams
from volery.core.tags import check_heeded, with_tags

CLUSTER = Cluster.uniform(8)


@pytest.mark.parametrize(
    ("design", "parameters", "place"),
    [
        ("pipeline", {"T9": "fixed"}, "T9=none"),
        ("pipeline", {"T3": "strict"}, "T3=skip"),
        ("pipeline", {"lrms": "2"}, "lrms=0"),
        ("pipeline", {"T5": "stage-in"}, "T5=none"),
        ("omega", {"gang": "true"}, "gang=false"),
        ("omega", {"preemption": "true"}, "preemption=false"),
        ("monolithic", {"gang": "true"}, "gang=false"),
        ("megha", {"shares": "a:1+b:1"}, "no shares"),
        ("megha", {"reliable": "true", "recovery": "paper"}, "recovery=asked"),
        ("megha", {"repartition": "true"}, "repartition=false"),
        ("megha", {"rescheduling": "tail"}, "rescheduling=head"),
        ("central", {"why": "true"}, "why=false"),
    ],
)
def test_tags_exclude_what_they_have_no_meaning_for(design: str, parameters: dict[str, str], place: str) -> None:
    entry = lookup(design)
    parameters |= {"gms": "2", "lms": "2"} if design == "megha" else {}
    with pytest.raises(
        InputError, match=f"^{'megha' if design == 'central' else design}:tags: .*Take {place}, or tags=false"
    ):
        entry.build(CLUSTER, configure(entry, {**parameters, "tags": "true"}), Streams(0))
    entry.build(CLUSTER, configure(entry, parameters), Streams(0))


def test_presets_heed_tags_where_their_stages_allow_it() -> None:
    assert lookup("kubernetes").tags == lookup("borg").tags == "tags"
    assert lookup("dryad").tags == lookup("backfill").tags == lookup("mesos").tags == lookup("megha-2021").tags == ""


@pytest.mark.parametrize("design", ["pipeline", "kubernetes", "omega", "monolithic", "central"])
def test_a_deployment_declares_that_it_heeds_tags(design: str) -> None:
    entry = lookup(design)
    for value, declared in (("true", True), ("false", False)):
        deployment = entry.build(CLUSTER, configure(entry, {"tags": value}), Streams(0))
        assert (deployment.capability(TagPlacement) is not None) == declared


def federated(constraint: TagConstraint, racks: tuple[int, ...], names: tuple[str, ...], **parameters: str) -> None:
    """Megha on eight machines in these racks, asked whether it heeds a constraint of tasks with these tags."""
    cluster = Cluster((0,) * 8, (1,) * 8, racks=racks)
    entry = lookup("megha")
    given = {"tags": "true", "gms": "2", "lms": "2", **parameters}
    deployment = entry.build(cluster, configure(entry, given), Streams(0))
    trace = with_tags(trace_of("t", [0, 0], [[1000], [1000]]), [names, ("mem",)], [constraint])
    check_heeded(trace, deployment, "megha")


def test_a_rack_of_two_local_masters_is_refused_where_a_constraint_is_about_racks() -> None:
    near = TagConstraint(("storm",), ("mem",), 1, group="rack")
    with pytest.raises(InputError, match=r"^megha: .*rack 1 has machines of lm/0 and lm/1.*set --racks"):
        federated(near, (0, 0, 0, 1, 1, 2, 2, 2), ("storm",))
    federated(near, (0, 0, 0, 0, 1, 1, 1, 1), ("storm",))
    federated(near, (0, 0, 0, 1, 1, 2, 2, 2), ("storm",), lms="1")
    federated(TagConstraint(("storm",), ("mem",), 1), (0, 0, 0, 1, 1, 2, 2, 2), ("storm",))


def test_tasks_that_gather_are_refused_where_no_local_master_knows_all_machines() -> None:
    gather = TagConstraint(("storm",), ("storm",), 2)
    with pytest.raises(InputError, match=r"^megha: .*\{storm, \{storm, 2, inf\}, node\}.*gather.*set lms=1"):
        federated(gather, (), ("storm",))
    federated(gather, (), ("storm",), lms="1")


def test_amounts_and_tags_exclude_each_other() -> None:
    cluster = Cluster((0,) * 4, (1,) * 4, "c", ("cpu_milli",), ((1000,),) * 4)
    entry = lookup("central")
    with pytest.raises(InputError, match=r"^megha:tags: .*ask for amounts"):
        entry.build(cluster, configure(entry, {"tags": "true"}), Streams(0))
