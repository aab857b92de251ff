"""Time per stage of a study's architectures: one further run each, whose components are measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from volery import architectures
from volery.core.component import Architecture, Component, Deployment
from volery.core.errors import DamagedError, InputError
from volery.core.model import Address
from volery.integrity import unsealed
from volery.report.schema import STAGE_TIMES, MethodTime, StageProfile, StageTimes
from volery.sim.stagetime import PERCENTILES, StageClock, own_costs_s
from volery.study.plan import PlannedRun, plan
from volery.study.results import ResultsFolder, sole_writer, write_json
from volery.study.runs import build, drive, read_inputs, with_cutoff
from volery.study.spec import RunSpec, StudySpec
from volery.study.writer import write_results_report


def profile_stages(study: StudySpec) -> list[StageProfile]:
    """Each architecture at each setting, under the study's first seed, once more with its declared methods measured.

    Raises:
        InputError: as a run of the study does.
    """
    first: dict[tuple[str, int], PlannedRun] = {}
    for run in plan(study):
        first.setdefault((run.choice.label, run.point), run)
    return [profile_run(run.spec, run.key) for run in first.values()]


def keep_stage_times(folder: Path, profiles: Sequence[StageProfile]) -> None:
    """Write stage_times.json into the results folder of the same study, and its report anew.

    Raises:
        InputError: when another study is being written there, or it cannot be written.
    """
    with sole_writer(folder):
        write_json(folder / STAGE_TIMES, StageTimes(list(profiles)))
        write_results_report(folder)


def kept_stage_times(folder: Path) -> list[StageProfile]:
    """The stored times of the runs in a folder; runs that were run again later have none.

    Raises:
        InputError: when it is no results folder, or its file is damaged.
    """
    keys = {line.key for line in ResultsFolder(folder).manifest().runs}
    path = folder / STAGE_TIMES

    if not path.exists():
        return []

    try:
        stored = msgspec.json.decode(unsealed(path.read_bytes(), path), type=StageTimes)
    except DamagedError as error:
        raise DamagedError(str(path), f"{error.problem}; delete it") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read ({error}); delete it") from None
    return [profile for profile in stored.profiles if profile.key in keys]


def profile_run(run: RunSpec, key: str = "") -> StageProfile:
    """One run with its declared methods measured; its results are those of the same run without."""
    entry = architectures.lookup(run.architecture)
    inputs = read_inputs(run)
    run = with_cutoff(run, inputs.facts)
    deployment = build(run, inputs.cluster)
    clock = StageClock(entry.stages, roles(entry))
    clock.watch(with_parts(deployment, tuple(roles(entry).values())))
    driven = drive(run, inputs, deployment)
    times = msgspec.convert(clock.times(), list[MethodTime], from_attributes=True)
    return StageProfile(run.label or run.architecture, driven.cpu_s, own_costs_s(), times, key, PERCENTILES)


def roles(architecture: Architecture) -> dict[str, type[Any]]:
    """The classes of components, and of their parts, that stages name, from the module of the build function."""
    module = sys.modules[architecture.build.__module__]
    names = {declared.method.partition(".")[0] for declared in architecture.stages.values()}
    return {name: getattr(module, name) for name in names}


def with_parts(deployment: Deployment, named: tuple[type[Any], ...]) -> Deployment:
    """The deployment with the parts of its components as further components, to be measured like these.

    Args:
        named: the classes that its stages name; objects of other classes are no parts.
    """
    components: dict[Address, Any] = dict(deployment.components)
    components_and_parts: list[Any] = [*components.values()]
    known_ids = {id(component) for component in components_and_parts}

    # The list grows while it is read: parts of parts are found, too.
    for component in components_and_parts:
        for part in _attributes(component):
            if isinstance(part, (*named, Component)) and id(part) not in known_ids:
                known_ids.add(id(part))
                components_and_parts.append(part)
                if not isinstance(part, Component):
                    components[f"part/{len(components_and_parts)}"] = part

    return msgspec.structs.replace(deployment, components=components)


def _attributes(component: object) -> Iterator[object]:
    for kind in type(component).__mro__:
        for slot in getattr(kind, "__slots__", ()):
            yield getattr(component, slot, None)
    yield from getattr(component, "__dict__", {}).values()
