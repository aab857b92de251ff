"""Values as Slurm writes them that units and patterns do not describe.

Sources: the manual pages of sacct and sbatch of Slurm 22.05, and the schemas dbv0.0.38 to dbv0.0.40 of its JSON output.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

ARRAY: Final = re.compile(r"(?:\d+_\[)?([\d,:-]+?),?(?:\.\.\.)?(?:%\d+)?\]?")
"""The tasks of an array that have not started, in one row: `102_[3-4%1]`; a long list is cut and ends in `...`."""
NO_NUMBERS: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFF})
"""Numbers that mean none and infinite in JSON output until 22.05: NO_VAL and INFINITE of slurm.h."""
RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
GPU: Final = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)")


def array_size(job: str) -> float | None:
    """The number of tasks of an array that a row stands for; None where it stands for one.

    Raises:
        ValueError: the indices are none.
    """
    if not set("[,-") & set(job):
        return None
    indices = ARRAY.fullmatch(job)
    if indices is None:
        raise ValueError(f"{job!r} is no array as 102_[3-4%1]")

    size = 0
    parts = indices[1].split(",")
    # A list that is cut ends anywhere in its last range: of that, only the begin counts.
    if "..." in job and not re.search(r",\.\.\.", job):
        parts.pop()
        size = 1
    for part in parts:
        bounds = RANGE.fullmatch(part)
        if bounds is None:
            raise ValueError(f"{part!r} of {job!r} is no range as 3-9:2")
        low, high, step = int(bounds[1]), int(bounds[2] or bounds[1]), int(bounds[3] or 1)
        size += len(range(low, high + 1, step or 1))
    return size


def gpu_count(tres: str) -> float:
    """The GPUs of trackable resources, as `cpu=16,gres/gpu:a100=4,gres/gpu=4`; typed ones count where no sum stands."""
    counts = GPU.findall(tres)
    sums = [int(count) for model, count in counts if not model]
    return sums[0] if sums else sum(int(count) for _, count in counts)


def json_number(text: str) -> str | None:
    """A number of the JSON output: plain, or an object with `set`, `infinite` and `number`."""
    value = _decoded(text)
    if isinstance(value, dict):
        return str(value.get("number")) if value.get("set") and not value.get("infinite") else None
    return None if text.isdigit() and int(text) in NO_NUMBERS else text


def json_time(text: str) -> str | None:
    """A time of the JSON output, of which 0 means that it has not come."""
    number = json_number(text)
    return None if number == "0" else number


def json_state(text: str) -> str:
    """The state of the JSON output: a text, or since 23.11 a list, whose first entry is the state itself."""
    value = _decoded(text)
    return str(value[0]) if isinstance(value, list) and value else text


def json_tres(text: str) -> str:
    """Trackable resources of the JSON output in the form of the text output, `cpu=16,gres/gpu:a100=4`.

    Raises:
        ValueError: it is no list of objects with `type` and `count`.
    """
    entries = _decoded(text)
    if not isinstance(entries, list):
        raise ValueError(f"{text!r} is no list of trackable resources")
    try:
        return ",".join(f"{entry['type']}{'/' if entry.get('name') else ''}{entry.get('name') or ''}={entry['count']}"
                        for entry in entries)  # fmt: skip
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{text!r} is no list of objects with type and count") from None


def json_gpus(text: str) -> float | None:
    """The GPUs of trackable resources of the JSON output; None of a job that has none allocated yet."""
    tres = json_tres(text)
    return gpu_count(tres) if tres else None


def _decoded(text: str) -> Any:
    if text[:1] not in "{[":
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
