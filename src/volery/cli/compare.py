"""`volery compare`: architectures side by side on one workload and one cluster."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
import typer

from volery.cli import options
from volery.cli.options import argument, declared, measured_window, moment, seeds_given, trace_name, whole_numbers
from volery.cli.output import print_results
from volery.lab.progress import LiveProgress
from volery.setting import DECLARED, Group, Setting, option_of, words_of

if TYPE_CHECKING:
    from volery.study import StudySpec

PLACES: Final = {"hosts": "--costs", "frames": "--costs"}
"""The options that set fields which have none of their own, for error messages."""


def compare(
    architectures: options.Architectures,
    seeds: options.Seeds = "1",
    processes: options.Processes = 1,
    output: options.KeepIn = None,
    as_json: options.AsJson = False,
    cost_file: options.CostFile = None,
    seeds_max: options.SeedsMax = None,
    budget_s: options.BudgetS = None,
    baseline: options.Baseline = "",
    dask: options.Dask = None,
    force: options.Force = False,
    why: options.Why = False,
    profile: options.Profile = None,
    strict: options.Strict = False,
    **setting: Any,  # an option for each field of `volery.setting.Setting` that has a form there; see `with_setting`
) -> None:
    """Run architectures on the same workload with common random numbers, and see which is better."""
    from volery.study import compare_spec

    study = compare_spec(
        architectures,
        given_setting(setting, cost_file),
        seeds_given(seeds),
        place=place_of,
        baseline=baseline,
        seeds_max=seeds_max,
        budget_s=budget_s,
    )

    run_and_print(study, output, processes, force, as_json, dask=dask, why=why, profile=profile, strict=strict)


def given_setting(options_given: dict[str, Any], cost_file: Path | None) -> dict[str, Any]:
    """The fields of a setting that the options of `with_setting` give, and those of a file of costs."""
    setting = dict(options_given)
    network = _network(cost_file, setting.pop("delay_us"), _pairs(setting.pop("links"), "links"))
    # An option for one role is stronger than the file of costs.
    network["costs"] |= _pairs(setting.pop("costs"), "costs")
    return (
        setting | {"warmup": moment(setting["warmup"] or "0"), "window": measured_window(setting["window"])} | network
    )


def place_of(field: str) -> str:
    """The option that sets a field, for error messages."""
    return PLACES.get(field) or option_of(field)


def _options() -> list[inspect.Parameter]:
    """An option per field of a setting that has a form on the command line, in the order of the fields."""
    options = []

    for field in msgspec.structs.fields(Setting):
        if not DECLARED[field.name]["form"]:
            continue

        option_type, default = _typed(field)
        callback = trace_name if field.name == "trace" else None
        shown = default not in (None, "", inspect.Parameter.empty)

        option = declared(field.name, callback=callback, shown=shown)
        annotation = Annotated[option_type, option]  # type: ignore[valid-type]  # known at run time

        options.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return options


def _typed(field: msgspec.structs.FieldInfo) -> tuple[Any, Any]:
    """The type that the command line reads, and the default; names and texts are checked with the rest of the study."""
    element_type = get_args(field.type)[0]
    while get_origin(element_type) is Annotated:
        element_type = get_args(element_type)[0]

    if get_origin(element_type) is dict:
        return list[str] | None, None
    if field.name in ("warmup", "window"):
        return str | None, None

    if field.name == "delay_us":  # a file of costs may say another
        return int | None, None
    kind = element_type
    if words_of(element_type):
        kind = str if get_origin(element_type) is Literal else str | None
    return kind, inspect.Parameter.empty if field.required else field.default


def with_setting(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of a setting: those that matter first, then by group."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    fields = _options()

    main = [option for option in fields if not DECLARED[option.name]["group"]]
    grouped_options = [option for option in fields if DECLARED[option.name]["group"]]
    grouped_options.sort(key=lambda option: get_args(Group).index(DECLARED[option.name]["group"]))
    command_options = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in own]
    signature = inspect.Signature(
        [*command_options[:1], *main, *command_options[1:5], *grouped_options, *command_options[5:]]
    )
    command.__signature__ = signature  # type: ignore[attr-defined]  # functions have one; typeshed lacks it
    return command


with_setting(compare)


def _pairs(entries: list[str] | None, name: str) -> dict[str, int]:
    return whole_numbers(entries or (), option_of(name), DECLARED[name]["form"])


def _network(costs: Path | None, delay_us: int | None, links: dict[str, int]) -> dict[str, Any]:
    """The network and costs of a file of costs, overridden by the options."""
    from volery.study.file import read_costs, settings

    network: dict[str, Any] = {"links": {}, "costs": {}, "hosts": {}}
    network |= settings(read_costs(costs)) if costs is not None else {}
    network["links"] |= links
    if delay_us is not None:
        network["delay_us"] = delay_us
    return network


def run_and_print(
    study: StudySpec,
    output: Path | None,
    processes: int,
    force: bool,
    as_json: bool,
    *,
    dask: str | None = None,
    why: bool = False,
    profile: str | None = None,
    strict: bool = False,
) -> None:
    """Run a study with live progress, print its table, and leave with status 130 if Ctrl-C cut it short."""
    from volery.study import run_study
    from volery.study.answers import explaining
    from volery.study.stagetime import keep_stage_times, profile_stages

    if why:
        study = explaining(study)

    command = shlex.join(["volery", *sys.argv[1:]])
    with LiveProgress(silent=as_json) as watcher:
        results = run_study(
            study, folder=output, processes=processes, dask=dask, force=force, watcher=watcher, command=command
        )

    # Stages are timed in runs of their own: a run that is measured so is slower.
    stage_times = profile_stages(study) if profile and not results.interrupted else []
    if stage_times and results.folder is not None:
        keep_stage_times(results.folder, stage_times)

    print_results(results, as_json, stage_times, strict=strict)


def run(
    study: Annotated[Path, argument("The study.", "STUDY.toml")],
    output: options.KeepIn = None,
    baseline: options.Baseline = "",
    seeds: options.SeedsOfFile = None,
    seeds_max: options.SeedsMax = None,
    budget_s: options.BudgetS = None,
    processes: options.Processes = 1,
    dask: options.Dask = None,
    force: options.Force = False,
    why: options.Why = False,
    profile: options.Profile = None,
    strict: options.Strict = False,
    as_json: options.AsJson = False,
) -> None:
    """Run a study from a file: architectures x settings x seeds; what is finished is not run again."""
    from volery.study import read_study
    from volery.study.spec import with_baseline, with_seeds

    planned_study = with_baseline(read_study(study), baseline, "--baseline")
    chosen_seeds = None if seeds is None else seeds_given(seeds)
    planned_study = with_seeds(planned_study, chosen_seeds, seeds_max, budget_s, option_of)

    run_and_print(planned_study, output, processes, force, as_json, dask=dask, why=why, profile=profile, strict=strict)


ARCHITECTURES = ("megha", "pigeonc", "pigeonc:constraint_counting=published-code")
SETTING = {"trace": "syn:250x300", "workers": 2000, "constraints": "sharma2011"}
SEEDS = 3
SCENE = (
    "300 jobs of 250 one-second tasks, one job a second, on 2,000 workers; tasks and machines with the placement "
    "constraints of Sharma et al. (2011); three seeds."
)


def demo(
    output: options.KeepIn = None,
    processes: options.Processes = 1,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare Megha with PigeonC, with and without its published code's way of counting, on bundled synthetic work."""
    from volery.study import compare_spec

    if not as_json:
        typer.echo(SCENE)
    run_and_print(compare_spec(ARCHITECTURES, SETTING, SEEDS), output, processes, force, as_json)
