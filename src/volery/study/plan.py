"""From a study to its runs, each with a label and a key over all that its result depends on: inputs, parameters, code.

A stored result is kept as long as the sources that its run imports mean the same. They are followed through imports, so
that a scheduler added next to another leaves the other's results alone, and compared without comments and docstrings,
so that better words do not cost hours of computing.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from volery import architectures, workload
from volery.architectures.pipeline.policies import SESSION as SESSION_POLICIES
from volery.core.errors import InputError
from volery.core.features import GANGS, used_features
from volery.integrity import file_digest
from volery.setting import Setting
from volery.study.definitions import session_code
from volery.study.slurmconf import with_conf
from volery.study.sources import sources_digest
from volery.study.spec import ArchitectureChoice, RunSpec, StudySpec, Value, is_synthetic, point_label

KEY_VERSION: Final = 3
"""Goes up when the layout of a stored run changes, so that older ones are run again instead of misread."""
CUTOFF_PARAMETER: Final = "cutoff_s"


class PlannedRun(msgspec.Struct, frozen=True):
    """A run of a study.

    Args:
        key: SHA-256 of everything that the result depends on; equal keys, equal results.
        choice: the architecture as it was given, without what the lab adds.
        point: the place of its setting among the study's settings.
    """

    key: str
    spec: RunSpec
    choice: ArchitectureChoice
    point: int


def plan(study: StudySpec) -> list[PlannedRun]:
    """Every run of the study with its key, in the order in which they are run.

    Raises:
        InputError: for an unknown architecture or parameter, or a file that cannot be read.
    """
    return [msgspec.structs.replace(run, key=run_key(run.spec)) for run in outline(study)]


def complete_parameters(choice: ArchitectureChoice, setting: Setting) -> dict[str, Value]:
    """The given parameters, and the study's cutoff where the architecture takes one and was given none.

    Raises:
        InputError: for an unknown architecture or parameter.
    """
    parameters = with_conf(choice)
    if setting.cutoff_s is not None and architectures.takes(choice.name, CUTOFF_PARAMETER):
        parameters.setdefault(CUTOFF_PARAMETER, setting.cutoff_s)

    architectures.choose(choice.name, parameters)
    return parameters


def recorded_parameters(choice: ArchitectureChoice, setting: Setting) -> dict[str, Value]:
    """The parameters of a recorded run, whose design may have left the registry: then those that were given."""
    try:
        return complete_parameters(choice, setting)
    except InputError:
        return dict(choice.parameters)


Completion = Callable[[ArchitectureChoice, Setting], dict[str, Value]]


def outline(study: StudySpec, completion: Completion = complete_parameters) -> list[PlannedRun]:
    """Every run of the study, without keys (no file is read); runs that share their inputs stand together.

    Args:
        completion: completes the parameters of an architecture in a setting.

    Raises:
        InputError: for an unknown architecture or parameter.
    """
    varying = study.varying()
    runs = []

    for point, setting in enumerate(study.settings()):
        choices = [(choice, completion(choice, setting)) for choice in study.choices()]
        values = {name: getattr(setting, name) for name in Setting.__struct_fields__}
        values["are_gangs_tasks"] = are_gangs_tasks(setting, choices)
        setting_label = study.in_label(point_label(setting, varying))

        for seed in study.seeds:
            for choice, parameters in choices:
                label = f"{choice.label} [{setting_label}]" if setting_label else choice.label
                spec = RunSpec(**values, architecture=choice.name, parameters=parameters, seed=seed, label=label)
                runs.append(PlannedRun("", spec, choice, point))
    return runs


def in_table_order(runs: Sequence[PlannedRun], study: StudySpec) -> list[PlannedRun]:
    """The runs by setting, then architecture as the study lists them, then seed."""
    place = {choice.label: i for i, choice in enumerate(study.choices())}
    return sorted(runs, key=lambda run: (run.point, place[run.choice.label], study.seeds.index(run.spec.seed)))


def are_gangs_tasks(setting: Setting, choices: Iterable[tuple[ArchitectureChoice, Mapping[str, Value]]]) -> bool:
    """True if rigid jobs are read as one task each, as some design of a comparison does not start gangs whole.

    Args:
        choices: Designs of the comparison with their parameters.
    """
    if setting.gangs is not None or not workload.states_gangs(setting.trace, setting.columns):
        return False
    return not all(_starts_gangs(choice.name, parameters) for choice, parameters in choices)


def _starts_gangs(name: str, parameters: Mapping[str, Value]) -> bool:
    """True for a design that starts gangs whole, and for one of a recorded run that is unknown now."""
    try:
        return GANGS in used_features(*architectures.choose(name, parameters))
    except InputError:
        return True


def takes_cutoff_of_trace(run: RunSpec) -> bool:
    """True for a design that takes a cutoff and was given none, so that the trace gives it."""
    return CUTOFF_PARAMETER not in run.parameters and architectures.takes(run.architecture, CUTOFF_PARAMETER)


def run_key(run: RunSpec) -> str:
    """SHA-256 over the run's inputs by content: files by their bytes, parameters with the defaults filled in, the code.

    Raises:
        InputError: when a file of the run cannot be read.
    """
    config = architectures.choose(run.architecture, run.parameters).config
    content: dict[str, Any] = {
        "version": KEY_VERSION,
        "code": code_digest(run.architecture),
        "architecture": run.architecture,
        "config": msgspec.to_builtins(config),
        "inputs": inputs_key(run),
    }

    content |= {name: getattr(run, name) for name in ("seed", "cutoff_s", "delay_us", "jitter_us", "links", "costs")}

    # A field stands in the content only where it is set: keys of earlier studies, which had no such field, stay valid.
    if session_policies := _session_policies(config):
        content["policies"] = _session_digest(session_policies, set())
    if takes_cutoff_of_trace(run):
        content["cutoff"] = "of the trace"
    if run.outages:
        content["outages"] = run.outages
    if run.hosts:
        content["hosts"] = run.hosts
    if run.frames is not None:
        content["frames"] = run.frames
    if run.crashes:
        content["crashes"] = run.crashes
    if run.warmup:
        content["warmup"] = run.warmup
    if run.window is not None:
        content["window"] = run.window
    if run.gangs == "hold":
        content["gangs"] = run.gangs
    if run.history:
        content["history"] = content_digest(run.history)

    return _digest(content)


def inputs_key(run: RunSpec) -> str:
    """SHA-256 over what determines the run's trace and machines.

    Raises:
        InputError: when a file cannot be read.
    """
    drawn = run.constraints != "none" and run.machines is None
    content: dict[str, Any] = {
        "code": inputs_code_digest(),
        "trace": content_digest(run.trace),
        "machines": run.machines and content_digest(run.machines),
        "population": (run.seed if run.population is None else run.population) if drawn else None,
    }
    if run.users is not None:
        content["users"] = run.users

    names = ("seed", "jobs", "durations", "arrivals", "constraints", "workers", "slots")

    if run.requests != "none":
        content["requests"] = content_digest(run.requests) if run.requests.endswith(".toml") else run.requests

    content |= {"racks": run.racks} if run.racks > 1 else {}
    if run.only != "ran":
        content["only"] = run.only
    if run.columns is not None:
        content["columns"] = content_digest(run.columns) if run.columns.endswith(".toml") else run.columns
    if run.limits is not None:
        content["limits"] = run.limits
    if not run.has_gangs:
        content["gangs"] = "task"
    if run.load is not None:
        content |= {"load": run.load, "load_by": run.load_by}
    if run.estimates != "mean":
        content["estimates"] = run.estimates

    content |= {
        name: getattr(run, name)
        for name in ("capacity", "resources", "slot_request", "reference_mhz", "variability", "blocks")
        if getattr(run, name)
    }

    return _digest(content | {name: getattr(run, name) for name in names})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def content_digest(name: str) -> str:
    """SHA-256 of a file's bytes, or the name itself where it stands for synthetic work.

    Raises:
        InputError: when it is a file that cannot be read.
    """
    path = Path(name)
    if not path.exists() and is_synthetic(name):
        return name
    try:
        stat = path.stat()
        return _digest_of_state(path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise InputError(name, f"cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=64)
def _digest_of_state(path: Path, _size: int, _changed_ns: int) -> str:
    return file_digest(path)


WORKLOAD: Final = "volery.workload"
INPUT_ROOTS: Final = (WORKLOAD, "volery.metrics")
RUN_ROOTS: Final = ("volery.sim",)


def study_digest(study: StudySpec) -> str:
    """`code_digest` of a study's architectures."""
    return code_digest(*sorted({choice.name for choice in study.architectures}))


def code_digest(*names: str) -> str:
    """SHA-256 over the sources that results of these architectures depend on, foreign ones included.

    Args:
        names: architectures; none: what depends on traces and machines alone.

    Raises:
        InputError: an architecture is unknown.
    """
    designs = architectures.SESSION.get()
    session_designs = {name: designs[name] for name in names if name in designs}
    if not session_designs:
        return _code_digest(*names)
    return _session_digest(session_designs, {_code_digest(*(name for name in names if name not in designs))})


def _session_policies(config: msgspec.Struct) -> dict[str, Any]:
    """The policies of a session that a configuration names, by stage."""
    policies = {}
    for stage, known_policies in SESSION_POLICIES.get().items():
        name = str(getattr(config, stage.value, "")).partition("/")[0]
        if name in known_policies:
            policies[stage.value] = known_policies[name]
    return policies


def _session_digest(definitions: Mapping[str, Any], other_digests: set[str]) -> str:
    """SHA-256 over what a program has defined itself, and over the sources that it builds upon."""
    code = session_code(definitions)
    sources = _modules_digest(code.modules)
    return _digest({"definitions": code.digest, "sources": sources, "others": sorted(other_digests)})


@functools.lru_cache(maxsize=64)
def _modules_digest(modules: frozenset[str]) -> str:
    """The digest of modules of this package, and of what every run depends on."""
    return sources_digest({*INPUT_ROOTS, *RUN_ROOTS, *modules}, set())


@functools.lru_cache(maxsize=64)
def _code_digest(*names: str) -> str:
    """The digest of registered architectures."""
    roots = {*INPUT_ROOTS, *(RUN_ROOTS if names else ())}
    foreign = set()
    for name in names:
        build = architectures.lookup(name).build
        if build.__module__.startswith("volery."):
            roots.add(build.__module__)
        else:
            foreign.add(Path(inspect.getfile(build)))
    return sources_digest(roots, foreign)


@functools.lru_cache(maxsize=1)
def inputs_code_digest() -> str:
    """SHA-256 over the sources that make traces and machines."""
    return sources_digest({WORKLOAD}, set())
