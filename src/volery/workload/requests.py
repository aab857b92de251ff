"""Requests of tasks where a trace has none: classes of requests, drawn by weight.

A model is a file in TOML, or the one that comes with the package, `alibaba-like`:

    resources = ["cpu_milli", "memory_mb"]
    per = "job"                                        # or "task": who draws
    classes = [{ weight = 3, request = [500, 64] }, { weight = 1, request = [1000, 128] }]

Draws come from the stream `requests` of the seed, one per job or task in order, so that the first jobs of a trace ask
for the same however many follow.
"""

from __future__ import annotations

import re
import tomllib
from array import array
from collections.abc import Iterable
from importlib import resources as packaged
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.model import AMOUNT_MAX, Amounts
from volery.core.trace import Trace
from volery.workload.columns import generator, view

MODELS: Final = ("none", "alibaba-like")
NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
CLASSES_MAX: Final = 1 << 16

Amount = Annotated[int, msgspec.Meta(ge=0, le=AMOUNT_MAX)]


class RequestClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request and how often it occurs.

    Args:
        weight: how often, compared with the other classes.
        request: units of each resource, in the order of `resources`.
    """

    weight: Annotated[float, msgspec.Meta(gt=0)]
    request: tuple[Amount, ...]


class RequestModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Classes of requests.

    Args:
        resources: what requests count, each name with its unit.
        classes: at least one.
        per: whether the tasks of a job ask for the same or each for itself.
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
        known = suggestion(name, MODELS)
        raise InputError("requests", f"{name!r} is neither a request model{known} nor a .toml file of one")
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
    for k, one in enumerate(model.classes):
        if len(one.request) != len(model.resources):
            problem = f"has {len(one.request)} amounts where there are {len(model.resources)} resources"
            raise InputError(f"{place}.classes[{k}].request", problem)
    return model


def check_names(names: tuple[str, ...], place: str) -> None:
    """Refuse names of resources that no file and no option could hold.

    Raises:
        InputError: a name is malformed or stands there twice.
    """
    for name in names:
        if not NAME.fullmatch(name):
            raise InputError(place, f"{name!r} is no name of a resource; write it as cpu_milli, memory_mb or gpus")
        if names.count(name) > 1:
            raise InputError(place, f"{name!r} stands there twice; leave one out")


def ask(trace: Trace, model: str, seed: int) -> Trace:
    """The trace with requests on its tasks.

    Args:
        trace: the workload; requests that it has are replaced.
        model: name or file, or `none` to leave the trace as it is.
        seed: of the run.

    Raises:
        InputError: there is no such model, or its file is wrong.
    """
    if model == "none":
        return trace
    found = load_model(model)
    weights = np.array([one.weight for one in found.classes])
    bounds = np.cumsum(weights / weights.sum())[:-1]
    by_job = found.per == "job"
    u = generator(seed, "requests").random(trace.job_count if by_job else trace.task_count)
    drawn = np.searchsorted(bounds, u, side="right").astype(np.uint16)
    if by_job:
        drawn = np.repeat(drawn, np.diff(view(trace.first)))
    return with_requests(trace, found.resources, tuple(one.request for one in found.classes), drawn.tolist())


def with_requests(trace: Trace, names: tuple[str, ...], requests: tuple[Amounts, ...], places: Iterable[int]) -> Trace:
    """The trace with a request per task, by its place among the requests."""
    column = array("H" if len(requests) <= CLASSES_MAX else "q", places)
    return msgspec.structs.replace(trace, resources=names, requests=requests, request=column)
