"""Random inputs for the fuzzing targets: parameters of designs, small workloads, options of commands.

Everything is drawn from a seed: VOLERY_FUZZ_SEED (1), so that a failure comes again; VOLERY_FUZZ_CASES says how many.
"""

from __future__ import annotations

import os
import signal
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer
from tests.conformance.entries import VARIANTS

from volery.architectures import configure, lookup
from volery.cli.main import app, main
from volery.conformance.cases import RESOURCES, USERS, Case, flowing, trace_of
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster

SEED = int(os.environ.get("VOLERY_FUZZ_SEED", "1"))
EXTREMES = (
    "inf",
    "-inf",
    "nan",
    "",
    " ",
    "-1",
    "0",
    "1",
    "1e308",
    "-1e308",
    "1e-308",
    "1e-9",
    "1e9",
    "9" * 30,
    "-" + "9" * 30,
    "9000000000000000000",
    "1.5",
    "true",
    "None",
    "[]",
    "{}",
    "x",
    "a:1+b:2",
    "a:inf",
    "a:0",
    "0x10",
    "é",
)
CONSTRAINTS = 3
AMOUNTS = (4000, 8192, 2)
"""Of each machine, where there are amounts."""


def hints_of(architecture: Architecture) -> dict[str, Any]:
    """Types of the parameters, with their bounds."""
    return get_type_hints(type(architecture.defaults), include_extras=True)


def bounds(hint: Any) -> tuple[Any, dict[str, float]]:
    """The type of a parameter, and ge, gt, le and lt of it."""
    if get_origin(hint) is not Annotated:
        return hint, {}
    kind, *extras = get_args(hint)
    found: dict[str, float] = {}
    for extra in extras:
        for name in ("ge", "gt", "le", "lt"):
            if isinstance(extra, msgspec.Meta) and getattr(extra, name) is not None:
                found[name] = getattr(extra, name)
    return kind, found


def drawn(stream: Random, hint: Any, default: Any) -> Any:
    """A value that fits: the default's neighbourhood, or the least that is allowed."""
    kind, limits = bounds(hint)
    if get_origin(kind) is Literal:
        return stream.choice(get_args(kind))
    if kind is bool:
        return stream.random() < 0.5
    if kind not in (int, float):
        return default
    low = limits.get("ge", limits.get("gt", 0) + 1e-3)
    high = min(limits.get("le", limits.get("lt", 2e9) - 1e-3), max(10 * default, 10 * low, 4))
    value = stream.choice((low, default, default * stream.random() * 3, low + (high - low) * stream.random()))
    value = min(max(value, low), high)
    return round(value) if kind is int else value


def design(stream: Random, names: Sequence[str]) -> tuple[str, Architecture]:
    """A design with some parameters drawn; those that do not go together are drawn anew."""
    while True:
        name = stream.choice(names)
        base, _, first = name.partition(":")
        key, equals, value = first.partition("=")
        entry = lookup(base)
        given: dict[str, Any] = {**({key: value} if equals else {}), **VARIANTS.get(name, {})}
        hints = hints_of(entry)
        for field in stream.sample(list(hints), min(len(hints), stream.randint(0, 6))):
            if field not in given:
                given[field] = drawn(stream, hints[field], getattr(entry.defaults, field))
        try:
            config = configure(entry, {**entry.conformance.immediate, **given})
        except InputError:
            continue
        told = ",".join(f"{field}={value}" for field, value in given.items())
        return f"{base}:{told}", msgspec.structs.replace(
            entry, defaults=config, conformance=msgspec.structs.replace(entry.conformance, immediate={})
        )


def small_case(stream: Random, architecture: Architecture) -> Case:
    """Some dozen tasks of some jobs on some machines."""
    machines = stream.randint(2, 24)
    constraints = tuple([stream.getrandbits(CONSTRAINTS) for _ in range(machines)])
    cluster = Cluster(constraints, tuple([stream.randint(1, 3) for _ in range(machines)]), "fuzz")
    sizes = [stream.choice((0, 1, 1, 2, 5, stream.randint(1, 30))) for _ in range(stream.randint(1, 10))]
    jobs = [[stream.choice((0, 1000, stream.randrange(1, 3 * SECOND))) for _ in range(size)] for size in sizes]
    needs = [[stream.choice((0, 0, 0, 1, 2, 3, 8)) for _ in range(size)] for size in sizes]
    arrivals = sorted(stream.choice((0, 500, stream.randrange(5 * SECOND))) for _ in sizes)
    trace = trace_of("fuzz", arrivals, jobs, needs)
    trace = msgspec.structs.replace(trace, user=tuple([stream.choice(USERS) for _ in sizes]))
    if stream.random() < 0.3:
        trace = msgspec.structs.replace(trace, priority=array("q", [stream.randrange(12) for _ in sizes]))
    if stream.random() < 0.3:
        trace = flowing(trace, stream)
    if architecture.vectors and stream.random() < 0.4:
        requests = tuple([(stream.randint(0, 5000), stream.randint(1, 9000), stream.randint(0, 1)) for _ in range(5)])
        drawn_requests = array("H", [stream.randrange(5) for _ in range(trace.task_count)])
        cluster = msgspec.structs.replace(cluster, resources=RESOURCES, capacities=(AMOUNTS,) * machines)
        trace = msgspec.structs.replace(trace, resources=RESOURCES, requests=requests, request=drawn_requests)
    return Case("fuzz", 0, trace, cluster)


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*path, name))
        if not hasattr(command, "commands"):
            yield path, command

    return walk(typer.main.get_command(app), ())


def options(command: Any) -> Mapping[str, bool]:
    """The long names of a command's options; whether each is a flag."""
    return {
        next(name for name in option.opts if name.startswith("--")): bool(getattr(option, "is_flag", False))
        for option in command.params
        if any(name.startswith("--") for name in option.opts) and "--help" not in option.opts
    }


def status_of(words: Sequence[str], folder: Path, limit_s: int) -> tuple[int | None, str]:
    """The exit status of a command in a process of its own, and what it printed; None: it ran for too long."""
    told = folder / "told.txt"
    child = os.fork()
    if not child:
        os.chdir(folder)
        out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(limit_s)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        try:
            main(words)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 70
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    text = told.read_text(errors="replace") if told.exists() else ""
    return (os.waitstatus_to_exitcode(status) if not os.WIFSIGNALED(status) else None), text
