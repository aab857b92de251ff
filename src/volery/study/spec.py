"""A study: architectures x settings x seeds, and the single runs that it consists of.

A study is the cartesian product of its axes. Everything that is not the architecture or the seed is a *setting* (trace,
cluster, constraints, network, cutoff); runs of one setting and seed share the same jobs, task constraints and machines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from volery import architectures
from volery.core.bounds import SECONDS_MAX, SEEDS_MAX
from volery.core.costs import Frames, HostCosts
from volery.core.errors import InputError, suggestion
from volery.metrics import check_moment, check_window
from volery.report.groups import file_names
from volery.setting import AtLeastZero, Setting, checked_value
from volery.statistics import CONFIDENCE, SEEDS_MIN, Looks, looks
from volery.workload import check_load_of_spec, parse_estimates

AUTO: Final = "auto"
LIMIT: Final = 30
FIRST_LOOK: Final = 3
"""Two seeds decide next to nothing: Student's t with one degree of freedom is wide."""
Seeds = Annotated[int, msgspec.Meta(ge=1, le=SEEDS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=SEEDS_MIN, le=SEEDS_MAX)]
Budget = Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)]


class AutoSeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a study that adds seeds until its comparisons are decided, or of an experiment and its claims.

    Args:
        seeds_max: number of seeds at which it ends, whatever is decided.
        budget_s: CPU seconds of all runs together (of an experiment: of the added seeds), after which no run is begun;
            None: no limit.
        budget_looks: numbers of seeds at which a budget has ended a call between two planned looks.
    """

    seeds_max: Limit = LIMIT
    budget_s: Budget | None = None
    budget_looks: tuple[Limit, ...] = ()

    def looks(self) -> Looks:
        """The numbers of seeds at which the comparisons are judged: the planned ones, and those of budgets."""
        return self._with(looks(min(FIRST_LOOK, self.seeds_max), self.seeds_max), self.budget_looks)

    def look_from(self, seeds: int) -> int:
        """The number of seeds of the first look at or after a number of seeds."""
        return next((count for count in self.looks().counts if count >= seeds), self.seeds_max)

    def looks_of(self, seeds: int) -> Looks:
        """The looks of a study that has ended with a number of seeds, at which a budget may have put one more look."""
        return self._with(self.looks(), (seeds,))

    def ended_at(self, seeds: int) -> AutoSeeds:
        """The limits after an end with a number of seeds: a look that a budget has added is remembered.

        Without memory, the looks of calls with ever larger budgets would spend more than the error of one study. One
        seed decides nothing, and is no look.
        """
        if seeds < SEEDS_MIN or seeds in self.looks().counts:
            return self
        return msgspec.structs.replace(self, budget_looks=(*self.budget_looks, seeds))

    def confidence_at(self, seeds: int) -> float:
        """The confidence that intervals have at the look after a number of seeds."""
        return self.looks_of(seeds).confidence_at(seeds)

    @staticmethod
    def _with(plan: Looks, counts: Sequence[int]) -> Looks:
        return msgspec.structs.replace(plan, counts=tuple(sorted({*plan.counts, *counts})))


def read_seeds(
    seeds: Any, seeds_max: Any, budget_s: Any, place: Callable[[str], str]
) -> tuple[Sequence[Any], AutoSeeds | None]:
    """The seeds that a study begins with, and the limits of one that adds seeds.

    Args:
        seeds: a number of seeds, a list of them, or "auto".
        seeds_max, budget_s: see `AutoSeeds`; None where not given. They belong to "auto".
        place: maps "seeds", "seeds_max" and "budget_s" to the caller's names of them, for error messages.

    Raises:
        InputError: naming the first value that is wrong.
    """
    if seeds == AUTO:
        auto = AutoSeeds(*_limits(seeds_max, budget_s, place))
        return range(auto.look_from(0)), auto

    listed = seeds if isinstance(seeds, Sequence) and not isinstance(seeds, str) else None
    if AUTO in (listed or ()):
        raise InputError(place("seeds"), '"auto" is no member of a list; give "auto" alone, or numbers')

    for name, value in (("seeds_max", seeds_max), ("budget_s", budget_s)):
        if value is not None:
            raise InputError(
                place(name), f"belongs to seeds that are added; set {place('seeds')} to auto, or leave it out"
            )

    if listed is not None:
        return listed, None

    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise InputError(place("seeds"), f"expected a number of seeds >= 1, or auto, not {seeds!r}")
    return range(checked_value(seeds, Seeds, place("seeds"))), None


def with_limits(auto: AutoSeeds, seeds_max: Any, budget_s: Any, place: Callable[[str], str]) -> AutoSeeds:
    """The limits with others in place of those that are given.

    Raises:
        InputError: one of them is wrong.
    """
    limit, budget = _limits(seeds_max, budget_s, place)
    return AutoSeeds(auto.seeds_max if seeds_max is None else limit, auto.budget_s if budget_s is None else budget)


def _limits(seeds_max: Any, budget_s: Any, place: Callable[[str], str]) -> tuple[int, float | None]:
    if seeds_max == 1 and not isinstance(seeds_max, bool | float):
        raise InputError(
            place("seeds_max"), f"1 seed decides no comparison; give {SEEDS_MIN} or more ({LIMIT} if left out)"
        )
    limit = LIMIT if seeds_max is None else checked_value(seeds_max, Limit, place("seeds_max"))
    if budget_s == 0 and not isinstance(budget_s, bool):
        raise InputError(place("budget_s"), "a budget of 0 pays for no run; give CPU seconds above 0, or leave it out")
    return limit, None if budget_s is None else checked_value(budget_s, Budget, place("budget_s"))


Value = str | int | float | bool


class RunSpec(Setting, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: what `execute` needs to know, and all that its result depends on.

    Args:
        architecture: registry name.
        parameters: those that were given, the cutoff included where the architecture takes one.
        seed: seed of task constraints, drawn machines, synthetic work and every stream of the architecture.
        label: name of the run's architecture in tables; it names the axes that vary beside it.
    """

    architecture: str
    parameters: dict[str, Value] = {}  # noqa: RUF012 - msgspec gives each struct its own
    seed: AtLeastZero = 0
    label: str = ""


class ArchitectureChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An architecture with the parameters that differ from its defaults.

    Args:
        name: name in the registry.
        parameters: those that differ, by name.
    """

    name: str
    parameters: dict[str, Value] = {}

    @property
    def label(self) -> str:
        """The choice as the command line writes it: `pigeon:weight=20,reserved=9`."""
        parameters = ",".join(f"{name}={_written(value)}" for name, value in self.parameters.items())
        return f"{self.name}:{parameters}" if parameters else self.name


class StudySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Architectures x settings x seeds.

    Args:
        name: name of the study in reports.
        architectures: the first is the one that the others are compared with.
        axes: name of a field of `Setting` -> its values; what has its default alone is left out.
        seeds: one run of everything per seed.
        parameters: "design.parameter" -> its values: every choice of that design is run with each of them.
        baseline: label of the architecture that the others are compared with; empty: the first.
        auto: the limits of a study that adds seeds until its comparisons are decided; `seeds` has those drawn so far.
    """

    name: str
    architectures: tuple[ArchitectureChoice, ...]
    axes: dict[str, tuple[Any, ...]]
    seeds: tuple[int, ...] = (0,)
    parameters: dict[str, tuple[Value, ...]] = {}
    baseline: str = ""
    auto: AutoSeeds | msgspec.UnsetType = msgspec.UNSET

    @property
    def confidence(self) -> float:
        """The confidence of paired intervals: 95 %, or that of the look of a study that adds seeds."""
        return self.auto.confidence_at(len(self.seeds)) if self.auto else CONFIDENCE

    def choices(self) -> list[ArchitectureChoice]:
        """The architectures with each combination of the parameters that are axes, in the order of tables."""
        choices: list[ArchitectureChoice] = []

        for choice in self.architectures:
            own = {
                axis.partition(".")[2]: values
                for axis, values in self.parameters.items()
                if axis.partition(".")[0] == choice.name
            }
            points = (dict(zip(own, values, strict=True)) for values in itertools.product(*own.values()))
            choices += [ArchitectureChoice(choice.name, choice.parameters | point) for point in points]
        return choices

    def same_runs(self, compared_study: StudySpec) -> bool:
        """True if another study consists of the same runs, whatever they are compared with."""
        other_study = msgspec.structs.replace(compared_study, baseline=self.baseline)

        if self.auto and compared_study.auto and self.auto.seeds_max == compared_study.auto.seeds_max:
            # drawn seeds, the budget and its looks tell how far a study is, not which one it is
            other_study = msgspec.structs.replace(other_study, seeds=self.seeds, auto=self.auto)

        return self == other_study

    def settings(self) -> Iterator[Setting]:
        """The points of the study, in the order of the fields of `Setting`, the last axis fastest."""
        names = [name for name in SETTING_FIELDS if name in self.axes]
        for values in itertools.product(*(self.axes[name] for name in names)):
            yield Setting(**dict(zip(names, values, strict=True)))

    def varying(self) -> tuple[str, ...]:
        """The axes that have more than one value."""
        return tuple(name for name in SETTING_FIELDS if len(self.axes.get(name, ())) > 1)

    def in_label(self, text: str) -> str:
        """The text of a label with files by their names, where that is unambiguous."""
        for axis in self.varying():
            for path, name in file_names(self.axes[axis]).items():
                text = text.replace(f"{axis}={path}", f"{axis}={name}")
        return text

    def axis_columns(self) -> dict[str, tuple[Any, ...]]:
        """The axes that are columns of every table, with their values: `trace`, `workers`, and all that vary."""
        names = dict.fromkeys((*ALWAYS_COLUMNS, *self.varying()))
        return {name: tuple(_cell(value) for value in self.axes[name]) for name in names} | self.parameters

    def axis_values(self, run: RunSpec) -> dict[str, Any]:
        """The values of `axis_columns` in one run; None for the parameters of other designs."""
        values = {name: _cell(getattr(run, name)) for name in (*ALWAYS_COLUMNS, *self.varying())}
        for axis in self.parameters:
            design, _, parameter = axis.partition(".")
            values[axis] = run.parameters.get(parameter) if design == run.architecture else None
        return values


ALWAYS_COLUMNS: Final = ("trace", "workers")
SETTING_FIELDS: Final = tuple(Setting.__struct_fields__)
HOSTS: Final = dict[str, HostCosts]
FRAMES: Final = Frames | None
_TYPES: Final = {field.name: field.type for field in msgspec.structs.fields(Setting)} | {
    "hosts": HOSTS,
    "frames": FRAMES,
}
_NO_DEFAULT: Final = object()
DEFAULTS: Final = {
    field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    for field in msgspec.structs.fields(Setting)
    if not field.required
}
_REQUIRED: Final = tuple(field.name for field in msgspec.structs.fields(Setting) if field.required)


def parse_architecture(text: str, place: str) -> ArchitectureChoice:
    """Read `NAME[:param=value,...]`.

    Raises:
        InputError: at `place`, when it is not of that form or names a parameter twice.
    """
    name, colon, listed_parameters = text.partition(":")
    parameters: dict[str, Value] = {}

    if not name.strip() or (colon and not listed_parameters.strip()):
        raise InputError(place, f"{text!r} is not NAME or NAME:parameter=value,...")

    for part in listed_parameters.split(",") if colon else ():
        parameter, equals, value = (piece.strip() for piece in part.partition("="))
        if not (parameter and equals and value):
            raise InputError(place, f"{part!r} in {text!r} is not parameter=value")
        if parameter in parameters:
            raise InputError(place, f"{text!r} gives {parameter!r} twice")
        parameters[parameter] = value
    return ArchitectureChoice(name.strip(), parameters)


def make_study(
    name: str,
    architectures: Iterable[ArchitectureChoice],
    axes: Mapping[str, Sequence[Any]],
    seeds: Sequence[Any],
    place: Callable[[str, int | None], str],
    *,
    parameters: Mapping[str, Sequence[Any]] | None = None,
    baseline: str = "",
    auto: AutoSeeds | None = None,
) -> StudySpec:
    """A study whose every value has been checked.

    Args:
        name: name of the study in reports.
        architectures: at least one, no two alike.
        axes: values per field of `Setting`.
        seeds: distinct numbers >= 0.
        place: names the place of a value for an error message, from its axis and its number in the axis.
        parameters: values per `design.parameter`.
        baseline: name or label of the architecture that the others are compared with; empty: the first.
        auto: the limits of a study that adds seeds; None: the seeds are all.

    Raises:
        InputError: naming the place of the first value that is wrong.
    """
    for axis in axes:
        if axis not in SETTING_FIELDS:
            raise InputError(place(axis, None), f"unknown axis{suggestion(axis, SETTING_FIELDS)}")

    for axis in _REQUIRED:
        if not axes.get(axis):
            raise InputError(place(axis, None), "is missing; give at least one value")

    checked = {
        axis: _distinct([_plain(v, axis, place(axis, i)) for i, v in enumerate(axes[axis])], axis, place)
        for axis in SETTING_FIELDS
        if axis in axes
    }
    # An axis that has only its default is left out, so that the same study has one form, however it was written.
    checked = {axis: values for axis, values in checked.items() if values != (DEFAULTS.get(axis, _NO_DEFAULT),)}

    choices = _distinct(list(architectures), "architectures", place)
    numbers = _distinct(
        [checked_value(seed, AtLeastZero, place("seeds", i)) for i, seed in enumerate(seeds)], "seeds", place
    )

    _check_sense(checked, place)
    swept = {
        axis: _distinct([checked_value(v, Value, place(axis, i)) for i, v in enumerate(values)], axis, place)
        for axis, values in (parameters or {}).items()
    }

    study = StudySpec(name, tuple(choices), checked, tuple(numbers), check_parameters(choices, swept, place))
    study = msgspec.structs.replace(study, baseline=find_baseline(study, baseline, place("baseline", None)))
    return adding(study, auto, place("seeds", None)) if auto else study


def adding(study: StudySpec, auto: AutoSeeds, place: str) -> StudySpec:
    """The study, with seeds that are added within limits until its comparisons are decided.

    Raises:
        InputError: at `place`, when there is nothing to compare.
    """
    if len(study.choices()) < 2:
        raise InputError(
            place, "auto adds seeds until comparisons are decided; give two architectures, or a number of seeds"
        )
    return msgspec.structs.replace(study, seeds=tuple(range(auto.look_from(0))), auto=auto)


def _check_sense(axes: Mapping[str, Sequence[Any]], place: Callable[[str, int | None], str]) -> None:
    """Refuse what contradicts: two windows, two loads, and a part of a cluster that is another kind of cluster."""
    if any(axes.get("warmup", ())) and any(window is not None for window in axes.get("window", ())):
        raise InputError(place("warmup", None), "a window is given as well; leave one out")

    if not any(load is not None for load in axes.get("load", ())):
        if "machines" in axes.get("load_by", ()):
            raise InputError(place("load_by", None), "says how to set a load, and none is given; add load = [0.5, 0.9]")
        return

    for load_by in axes.get("load_by", ("arrivals",)):
        for trace in axes["trace"]:
            check_load_of_spec(trace, load_by, place("load", None))
        racks = any(racks > 1 for racks in axes.get("racks", ())) or "gpu-racks" in axes.get("constraints", ())
        if load_by == "machines" and racks:
            problem = 'a part of machines in racks is another kind of cluster; set load_by = "arrivals"'
            raise InputError(place("load_by", None), problem)


def with_baseline(study: StudySpec, name: str, place: str) -> StudySpec:
    """The study with another architecture that the others are compared with; an empty name leaves it as it is.

    Raises:
        InputError: as `find_baseline`.
    """
    return msgspec.structs.replace(study, baseline=find_baseline(study, name, place)) if name else study


def with_seeds(study: StudySpec, seeds: Any, seeds_max: Any, budget_s: Any, place: Callable[[str], str]) -> StudySpec:
    """The study with other seeds, or with other limits of the seeds that it adds; what is None stays.

    Args:
        seeds, seeds_max, budget_s, place: see `volery.study.spec.read_seeds`.

    Raises:
        InputError: naming the first value that is wrong.
    """
    if study.auto and seeds in (None, AUTO):
        return adding(study, with_limits(study.auto, seeds_max, budget_s, place), place("seeds"))

    chosen_seeds, auto = read_seeds(study.seeds if seeds is None else seeds, seeds_max, budget_s, place)
    study = msgspec.structs.replace(study, seeds=tuple(chosen_seeds), auto=msgspec.UNSET)
    return adding(study, auto, place("seeds")) if auto else study


def find_baseline(study: StudySpec, name: str, place: str) -> str:
    """The label of the architecture that a name, or a label, stands for; empty for the first.

    Raises:
        InputError: at `place`, when the study has no such architecture, or several.
    """
    if not name:
        return ""

    labels = [choice.label for choice in study.choices()]
    labels_found = [label for label in labels if name == label] or [
        choice.label for choice in study.choices() if choice.name == name
    ]

    if len(labels_found) == 1:
        return labels_found[0]
    if labels_found:
        raise InputError(place, f"{name!r} may be each of {', '.join(labels_found)}; give one of them")
    raise InputError(place, f"no architecture {name!r} here{suggestion(name, labels)}")


def _plain(value: Any, axis: str, place: str) -> Any:
    """The value of a setting, checked, as a manifest brings it back."""
    if axis in ("warmup", "window"):
        return None if value is None else (check_moment if axis == "warmup" else check_window)(value, place)
    if axis == "estimates":
        parse_estimates(checked_value(value, str, place), place)
    return msgspec.to_builtins(checked_value(value, _TYPES[axis], place))


def _distinct(values: list[Any], axis: str, place: Callable[[str, int | None], str]) -> tuple[Any, ...]:
    """Refuse an empty axis and a value that stands in it twice: it would only repeat runs."""
    if not values:
        raise InputError(place(axis, None), "is empty; give at least one value")
    for i, value in enumerate(values):
        if value in values[:i]:
            shown = value.label if isinstance(value, ArchitectureChoice) else value
            raise InputError(place(axis, i), f"{shown!r} stands here twice; leave one out")
    return tuple(values)


def point_label(setting: Setting, varying: Sequence[str]) -> str:
    """The values of the axes that vary, as `workers=100 slots=2`; empty when none does."""
    return " ".join(f"{name}={_written(getattr(setting, name))}" for name in varying)


def _cell(value: Any) -> Any:
    """A value as a table holds it: a table of keys, or a window, as text."""
    return _written(value) if isinstance(value, dict | list) else value


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "..".join(map(str, value))
    if isinstance(value, dict):
        return "+".join(f"{key}={entry}" for key, entry in value.items()) or "none"
    return str(value)


def is_synthetic(name: str) -> bool:
    """True for a name of the form of a synthetic workload, KIND:..."""
    kind, colon, _ = name.partition(":")
    return bool(colon) and len(kind) > 1 and kind.isalnum()


def is_drawn(name: str) -> bool:
    """True for a synthetic workload that every seed draws anew: all but `syn`, equal jobs at equal distances."""
    return is_synthetic(name) and not name.startswith("syn:")


def is_file(field: str, value: Any) -> bool:
    """True if a value of this field of a setting may be the name of a file."""
    return (
        field in ("trace", "machines")
        or (field == "history" and bool(value))
        or (field in ("requests", "columns") and str(value).endswith(".toml"))
    )


Place = Callable[[str, int | None], str]


def split_parameters(axes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Axes of settings, and axes of parameters by `design.parameter`; TOML reads an unquoted dot as a table."""
    setting_axes: dict[str, Any] = {}
    swept: dict[str, Any] = {}
    for name, values in axes.items():
        if "." in name:
            swept[name] = values
        elif isinstance(values, dict):
            swept |= {f"{name}.{parameter}": inner for parameter, inner in values.items()}
        else:
            setting_axes[name] = values

    return setting_axes, swept


def check_parameters(
    choices: Sequence[ArchitectureChoice], swept: Mapping[str, tuple[Value, ...]], place: Place
) -> dict[str, tuple[Value, ...]]:
    """The axes, once every value fits a parameter of a design of the study that is not given otherwise.

    Raises:
        InputError: naming the place of the axis or value that is wrong.
    """
    designs = list(dict.fromkeys(choice.name for choice in choices))
    for axis, values in swept.items():
        design, _, parameter = axis.partition(".")
        if design not in designs:
            raise InputError(
                place(axis, None), f"no architecture {design!r} in this study{suggestion(design, designs)}"
            )

        clashing = [choice.label for choice in choices if choice.name == design and parameter in choice.parameters]
        if clashing:
            raise InputError(place(axis, None), f"is given by {clashing[0]!r} as well; leave one out")

        architecture = architectures.lookup(design)
        for i, value in enumerate(values):
            try:
                architectures.configure(architecture, {parameter: value})
            except InputError as error:
                is_unknown = parameter not in architecture.defaults.__struct_fields__
                raise InputError(place(axis, None if is_unknown else i), error.problem) from None
    return dict(swept)
