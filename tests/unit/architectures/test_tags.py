"""Designs and tags: combinations that have no meaning are refused, and each kind of decision heeds them."""

from __future__ import annotations

import pytest

from volery.architectures import configure, lookup
from volery.core.capabilities import TagPlacement
from volery.core.errors import InputError
from volery.core.model import Cluster
from volery.core.streams import Streams

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
    ],
)
def test_tags_exclude_what_they_have_no_meaning_for(design: str, parameters: dict[str, str], place: str) -> None:
    entry = lookup(design)
    with pytest.raises(InputError, match=f"^{design}:tags: .*Take {place}, or tags=false"):
        entry.build(CLUSTER, configure(entry, {**parameters, "tags": "true"}), Streams(0))
    entry.build(CLUSTER, configure(entry, parameters), Streams(0))


def test_presets_heed_tags_where_their_stages_allow_it() -> None:
    names = ("kubernetes", "borg", "dryad", "backfill", "mesos")
    assert [lookup(name).conformance.tags for name in names] == ["tags", "tags", "", "", ""]


@pytest.mark.parametrize("design", ["megha", "central", "megha-2021", "monolithic"])
def test_designs_without_tags_have_no_parameter_for_them(design: str) -> None:
    assert lookup(design).conformance.tags == ""
    with pytest.raises(InputError, match="tags"):
        configure(lookup(design), {"tags": "true"})


@pytest.mark.parametrize("design", ["pipeline", "kubernetes", "omega"])
def test_a_deployment_declares_that_it_heeds_tags(design: str) -> None:
    entry = lookup(design)
    for value, declared in (("true", True), ("false", False)):
        deployment = entry.build(CLUSTER, configure(entry, {"tags": value}), Streams(0))
        assert (deployment.capability(TagPlacement) is not None) == declared
