"""Time per stage of a study's architectures: one further run each, whose components are measured."""

from __future__ import annotations

import sys

import msgspec

from volery import architectures
from volery.core.component import Architecture, Component
from volery.sim.stagetime import StageClock, StageTime, own_costs_s
from volery.study.plan import plan
from volery.study.runs import build, drive, read_inputs
from volery.study.spec import RunSpec, StudySpec


class StageProfile(msgspec.Struct, frozen=True):
    """Of one run.

    Args:
        label: of the run.
        cpu_s: all of it, measuring included.
        own_costs_s: what measuring adds to a call, and to the declared method that makes it, CPU seconds.
        times: per declared method.
    """

    label: str
    cpu_s: float
    own_costs_s: tuple[float, float]
    times: list[StageTime]


def profile_stages(study: StudySpec) -> list[StageProfile]:
    """Each architecture at each setting, under the study's first seed, once more with its declared methods measured.

    Raises:
        InputError: as a run of the study does.
    """
    first: dict[tuple[str, int], RunSpec] = {}
    for run in plan(study):
        first.setdefault((run.choice.label, run.point), run.spec)
    return [profile_run(run) for run in first.values()]


def profile_run(run: RunSpec) -> StageProfile:
    """One run with its declared methods measured; its results are those of the same run without."""
    entry = architectures.lookup(run.architecture)
    inputs = read_inputs(run)
    deployment = build(run, inputs.cluster)
    clock = StageClock(entry.stages, roles(entry))
    clock.watch(deployment)
    driven = drive(run, inputs, deployment)
    return StageProfile(run.label or run.architecture, driven.cpu_s, own_costs_s(), clock.times())


def roles(architecture: Architecture) -> dict[str, type[Component]]:
    """The classes that its stages name, from the module of its build function."""
    module = sys.modules[architecture.build.__module__]
    names = {found.method.partition(".")[0] for found in architecture.stages.values()}
    return {name: getattr(module, name) for name in names}
