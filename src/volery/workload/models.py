"""Models of what a trace lacks: requests of resources, estimates of durations with their errors, and users.

A model of requests is a file in TOML, or the one that comes with the package, `alibaba-like`: classes of requests,
drawn by weight from the stream `requests` of the seed, one draw per job or task in order.

    resources = ["cpu_milli", "memory_mb"]
    per = "job"                                        # or "task": who draws
    classes = [{ weight = 3, request = [500, 64] }, { weight = 1, request = [1000, 128] }]

A class with `users = ["ann"]` is for the jobs of these users alone.

Estimates of task durations, as schedulers see them:

    mean           the trace's own estimate of a job, or the mean of its durations where the trace has none
    exact          each task's duration
    requested      the trace's own estimate, of a trace that has one (requested times of an SWF log); a job without
                   one has the mean of its durations
    lognormal:S    mean duration of the job x exp(S z), z standard normal: the median is exact, S = 0.5 is off by 1.65
                   times upwards or downwards in a third of the jobs
    f:F            mean duration of the job x (1 + F u), u uniform from 0 to 1: the f-model of users who ask for too
                   much (Mu'alem and Feitelson, IEEE TPDS 2001)

An error is drawn once per job, in order of arrival, from the stream `workload/estimates`. Jobs stay short or long by
the trace's own estimate, so that measures of a class are of the same jobs under every model. Users are dealt to jobs by
weight from the stream `workload/users`. All draws are in order: the first jobs of a trace get the same however many
follow.
"""

from __future__ import annotations

import math
import re
import tomllib
from array import array
from collections.abc import Iterable, Sequence
from importlib import resources as packaged
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from volery.core.errors import InputError, suggestion
from volery.core.model import AMOUNT_MAX, SECOND, Amounts
from volery.core.trace import Trace
from volery.workload.arrays import Integers, Reals, column, generator, job_means, unlike_means, view
from volery.workload.distributions import normal_quantiles
from volery.workload.quirks import with_exact_estimates

MODELS: Final = ("none", "alibaba-like")
RESOURCES: Final = ("cpu_milli", "memory_mb", "gpu_milli", "disk_mb")
"""Resources of the requests that trace files state."""
RESOURCE_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
CLASSES_MAX: Final = 1 << 16

Amount = Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)]


class RequestClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request and how often it occurs.

    Args:
        weight: frequency, compared with the other classes.
        request: units of each resource, in the order of `resources`.
        users: whose jobs alone ask for it; empty: those of all.
    """

    weight: Annotated[float, msgspec.Meta(gt=0)]
    request: tuple[Amount, ...]
    users: tuple[str, ...] = ()


class RequestModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Classes of requests.

    Args:
        resources: names of what requests count, each with its unit.
        classes: classes of requests, at least one.
        per: "job" where the tasks of a job ask for the same, "task" where each asks for itself.
    """

    resources: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    classes: Annotated[tuple[RequestClass, ...], msgspec.Meta(min_length=1, max_length=CLASSES_MAX)]
    per: Literal["job", "task"] = "job"


def load_model(name: str) -> RequestModel:
    """A model by name or file.

    Raises:
        InputError: there is none of that name, or the file is wrong: the message names the key.
    """
    if name in MODELS[1:]:
        text = packaged.files("volery.workload").joinpath(f"data/{name}.toml").read_text(encoding="utf-8")
        return _read(text, name)

    path = Path(name)
    if path.suffix != ".toml":
        closest_models = suggestion(name, MODELS)
        raise InputError("requests", f"{name!r} is neither a request model{closest_models} nor a .toml file of one")

    try:
        return _read(path.read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}; check the path and its permissions"
        raise InputError(name, problem) from None


def _read(text: str, place: str) -> RequestModel:
    try:
        model = msgspec.convert(tomllib.loads(text), RequestModel)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise InputError(f"{place}:{line[1]}" if line else place, f"is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        raise InputError(place + path, problem[:1].lower() + problem[1:]) from None

    check_names(model.resources, f"{place}.resources")
    for k, request_class in enumerate(model.classes):
        if len(request_class.request) != len(model.resources):
            problem = f"has {len(request_class.request)} amounts where there are {len(model.resources)} resources"
            raise InputError(f"{place}.classes[{k}].request", problem)

    return model


def check_names(names: tuple[str, ...], place: str) -> None:
    """Refuse names of resources that no file and no option could hold.

    Raises:
        InputError: a name is malformed or stands there twice.
    """
    for name in names:
        if not RESOURCE_NAME.fullmatch(name):
            raise InputError(place, f"{name!r} is no name of a resource; write it as cpu_milli, memory_mb or gpus")
        if names.count(name) > 1:
            raise InputError(place, f"{name!r} stands there twice; leave one out")


def parse_resources(text: str, place: str) -> tuple[str, ...]:
    """Read `cpu_milli,memory_mb`, in the order of `RESOURCES`.

    Raises:
        InputError: a name is none of these.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in RESOURCES:
            raise InputError(place, f"{name!r} is no resource of a trace file{suggestion(name, RESOURCES)}")
    return tuple([name for name in RESOURCES if name in names])


def ask(trace: Trace, model: str, seed: int) -> Trace:
    """The trace with requests on its tasks.

    Args:
        trace: the workload; requests that it has are replaced.
        model: name or file, or `none` to leave the trace as it is.

    Raises:
        InputError: there is no such model, or its file is wrong.
    """
    if model == "none":
        return trace
    request_model = load_model(model)

    by_job = request_model.per == "job"
    u = generator(seed, "requests").random(trace.job_count if by_job else trace.task_count)
    fanouts = np.diff(view(trace.first))

    if any(request_class.users for request_class in request_model.classes):
        drawn = _drawn_by_user(
            request_model.classes, u, np.array(trace.user if by_job else np.repeat(trace.user, fanouts)), model
        )
    else:
        drawn = _drawn_classes(request_model.classes, u).astype(np.uint16)

    if by_job:
        drawn = np.repeat(drawn, fanouts)

    return with_requests(
        trace,
        request_model.resources,
        tuple(request_class.request for request_class in request_model.classes),
        drawn.tolist(),
    )


def _drawn_classes(classes: Sequence[RequestClass], u: Reals) -> Integers:
    weights = np.array([request_class.weight for request_class in classes])
    return np.searchsorted(np.cumsum(weights / weights.sum())[:-1], u, side="right")


def _drawn_by_user(classes: Sequence[RequestClass], u: Reals, users: NDArray[np.str_], place: str) -> Integers:
    """Places of classes, drawn among those that each user's jobs may ask for.

    Raises:
        InputError: the trace has no users, or a user has no class.
    """
    if len(users) != len(u):
        raise InputError(f"{place}.classes", "name users, and the trace has none; deal its jobs to users (--users)")

    drawn = np.zeros(len(u), dtype=np.int64)
    for user in np.unique(users).tolist():
        open_to = [
            k for k, request_class in enumerate(classes) if not request_class.users or user in request_class.users
        ]
        if not open_to:
            raise InputError(f"{place}.classes", f"no class is for user {user!r}; add one that names it, or no user")
        is_of_user = users == user

        drawn[is_of_user] = np.array(open_to)[_drawn_classes([classes[k] for k in open_to], u[is_of_user])]
    return drawn


def with_requests(trace: Trace, names: tuple[str, ...], requests: tuple[Amounts, ...], places: Iterable[int]) -> Trace:
    """The trace with a request per task, by its place among the requests."""
    column = array("H" if len(requests) <= CLASSES_MAX else "q", places)
    return msgspec.structs.replace(trace, resources=names, requests=requests, request=column)


PLAIN: Final = ("mean", "exact", "requested")
WITH_SIZE: Final = {"lognormal": 10.0, "f": 1000.0}
"""Models that take a number, with the largest."""
FORMS: Final = "mean, exact, requested, lognormal:S or f:F"
LONGEST_US: Final = 2_000_000_000 * SECOND


class ErrorModel(NamedTuple):
    """A model of estimation errors; `size` is S or F where the model has one."""

    name: str
    size: float = 0.0


def parse_estimates(text: str, place: str) -> ErrorModel:
    """Read `mean`, `exact`, `requested`, `lognormal:S` or `f:F`.

    Raises:
        InputError: at `place`, when it is none of these.
    """
    name, colon, number = text.partition(":")
    if text in PLAIN:
        return ErrorModel(name)

    if name not in WITH_SIZE:
        raise InputError(place, f"there is no {text!r}{suggestion(name, (*PLAIN, *WITH_SIZE))}; give {FORMS}")

    try:
        size = float(number)
    except ValueError:
        size = math.nan

    if not (colon and 0 <= size <= WITH_SIZE[name]):
        raise InputError(place, f"{text!r} needs a number from 0 to {WITH_SIZE[name]:g}; for example {name}:0.5")
    return ErrorModel(name, size)


def with_estimates(
    trace: Trace, text: str, seed: int, place: str = "estimates", *, has_estimates: bool = False
) -> Trace:
    """The trace with estimates of this model for its schedulers.

    Args:
        has_estimates: true where the source states estimates; else they are known by their difference from the means.

    Raises:
        InputError: there is no such model, or `requested` of a trace that has no estimates of its own.
    """
    model = parse_estimates(text, place)

    if model.name == "mean":
        return trace
    if model.name == "exact":
        return with_exact_estimates(trace)
    if model.name == "requested":
        if not has_estimates and not unlike_means(trace).any():
            fix = "give mean, exact, lognormal:S or f:F"
            raise InputError(place, f"the trace {trace.name!r} has no requested times; {fix}")
        return trace

    drawn = _drawn(model, job_means(view(trace.duration_us), view(trace.first)), seed)
    return msgspec.structs.replace(trace, told_estimate_us=column(drawn))


def _drawn(model: ErrorModel, means: Reals, seed: int) -> Integers:
    u = generator(seed, "workload/estimates").random(len(means))
    if model.name == "f":
        factors: Reals = 1 + model.size * u
    else:
        factors = np.exp(model.size * normal_quantiles(u))
    return np.clip(np.rint(means * factors), 1, LONGEST_US).astype(np.int64)


USERS_MAX: Final = 100_000
USERS_EXAMPLE: Final = "q1:10+q2:25+q3:15+q4:50"


def parse_users(text: str) -> dict[str, int]:
    """User -> weight, from `NAME:WEIGHT+NAME:WEIGHT`; a weight left out is 1.

    Raises:
        InputError: the text is not of that form.
    """
    weights: dict[str, int] = {}

    for part in text.split("+"):
        shape = re.fullmatch(r"\s*([^\s:+()]+)\s*(?::\s*([0-9]{1,9})\s*)?", part)
        weight = int(shape[2] or 1) if shape is not None else 0
        if shape is None or not weight:
            raise InputError(
                "users", f"{part!r} in {text!r} is not NAME:WEIGHT with a weight from 1; as {USERS_EXAMPLE}"
            )

        if shape[1] in weights:
            raise InputError("users", f"{shape[1]!r} stands in {text!r} twice; keep one")
        weights[shape[1]] = weight

    if len(weights) > USERS_MAX:
        raise InputError("users", f"{len(weights)} users are too many; at most {USERS_MAX} are possible")
    return weights


def deal_to_users(trace: Trace, users: str | None, seed: int) -> Trace:
    """The trace with a user for every job, each drawn by the weights from the stream `workload/users` of the seed.

    One draw per job, in order: the first jobs have the same users however many follow.

    Args:
        trace: the workload; users that it has are replaced.
        users: see `parse_users`; None leaves the trace as it is.

    Raises:
        InputError: the users are not a list of names and weights.
    """
    if users is None:
        return trace
    weights = parse_users(users)

    names = list(weights)
    bounds = np.cumsum(list(weights.values()))
    drawn = generator(seed, "workload/users").random(trace.job_count) * bounds[-1]
    places = np.searchsorted(bounds, drawn, side="right").tolist()
    return msgspec.structs.replace(trace, user=tuple(names[place] for place in places))
