"""Broken designs that take tags: they place without a look at them, do not validate, or count tasks that are gone."""

from __future__ import annotations

from typing import Any

from tests.conformance.mutation import mutant, spoiled

from volery.architectures.omega import OMEGA, OmegaConfig, build
from volery.architectures.omega.cell import CellClaim, CellState
from volery.architectures.pipeline import PIPELINE
from volery.architectures.pipeline import build as build_pipeline
from volery.architectures.pipeline.scheduler import Scheduler
from volery.core.component import Deployment
from volery.core.model import Cluster, Tags
from volery.core.streams import Streams
from volery.policies.tags import TagIndex


class Blind(TagIndex):
    """Allows every machine."""

    def allowed(self, tags: Tags) -> int:
        return self._all_machines


class Trusting(TagIndex):
    """Takes every claim."""

    def allows(self, machine: int, tags: Tags) -> bool:
        return True


def _index(cluster: Cluster, kind: type[TagIndex]) -> TagIndex:
    index = TagIndex(cluster)
    index.__class__ = kind
    return index


@mutant("check_tag_constraints", PIPELINE)
def build_places_without_a_look_at_tags(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    deployment = build_pipeline(cluster, config, streams)
    scheduler = deployment.components["scheduler/0"]
    assert isinstance(scheduler, Scheduler)
    scheduler._cycle.targets._index = _index(cluster, Blind)  # type: ignore[attr-defined]  # the mutant reaches into its cycle
    return deployment


@mutant("check_tag_constraints", OMEGA, defaults=OmegaConfig(batch_schedulers=4))
def build_validates_no_tags(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    deployment = build(cluster, config, streams)
    deployment.components["cell/0"]._tags = _index(cluster, Trusting)  # type: ignore[attr-defined]  # the mutant reaches into its cell
    return deployment


class Hoarder(CellState):
    """Counts the tags of tasks that have ended."""

    __slots__ = ()

    @staticmethod
    def _count(tags: TagIndex, claim: CellClaim, sign: int) -> None:
        if sign > 0 and claim.task.tags is not None:
            tags.add(claim.machine, claim.task.tags, sign)

    def check(self) -> None:
        self._claims.check()


@mutant("check_tag_constraints", OMEGA)
def build_counts_tags_that_are_gone(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build(cluster, config, streams), cell=Hoarder)
