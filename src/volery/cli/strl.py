"""`volery strl`: read a utility expression, print it, and show its allocation on some machines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.architectures.tetrisched.expressions import Expression
    from volery.architectures.tetrisched.plan import CyclePlan

MACHINES_MAX = 100_000
ITEM = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def strl(
    expression: Annotated[str, typer.Argument(metavar="EXPR|FILE", help="Utility expression, as STRL or JSON.")],
    machines: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=0-3,8", help="Members of a set of machines; asks for a plan."),
    ] = None,
    busy: Annotated[
        list[str] | None,
        typer.Option("--busy", metavar="0-3:2", help="Machines that come free with quantum 2 only."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a utility expression (STRL) and print it; with --set, plan it on those machines."""
    from volery.architectures.tetrisched.expressions import leaves, written
    from volery.policies.match import positions

    path = Path(expression)
    parsed = read(path.read_text(encoding="utf-8"), str(path)) if _is_file(path) else read(expression, "STRL")

    plan = _planned(parsed, machines, busy or []) if machines else None

    if as_json:
        leaf_machines = (
            None
            if plan is None
            else [{"leaf": allocation.leaf, "machines": positions(allocation.machines)} for allocation in plan.now]
        )
        print_json({"strl": written(parsed), "expression": parsed, "now": leaf_machines, "worth": plan and plan.worth})
        return
    typer.echo(written(parsed))

    if plan is not None:
        typer.echo(f"worth {plan.worth:g}")

        all_leaves = list(leaves(parsed))
        for allocation in plan.now:
            typer.echo(f"now: machines {_shown(allocation.machines)} for {written(all_leaves[allocation.leaf])}")

        if not plan.now:
            typer.echo("nothing starts now")


def read(text: str, place: str) -> Expression:
    """The expression in either form.

    Raises:
        InputError: it is neither; the message names the place in it.
    """
    from volery.architectures.tetrisched.expressions import from_json, parse

    return from_json(text) if text.lstrip().startswith("{") else parse(text, place)


def _is_file(path: Path) -> bool:
    return "(" not in path.name and path.is_file()


def _planned(expression: Expression, sets: list[str], busy: list[str]) -> CyclePlan:
    from volery.architectures.tetrisched.machines import MachineSupply
    from volery.architectures.tetrisched.plan import PlanProblem, solve

    members = {}
    for text in sets:
        name, equals, numbers = text.partition("=")
        if not (name and equals and numbers):
            raise InputError("--set", f"{text!r} is not NAME=MACHINES, as gpu=0-3,8")
        members[name] = _numbers(numbers, "--set")

    all_machines = 0
    for machine_bits in members.values():
        all_machines |= machine_bits

    busy_until: dict[int, int] = {}
    for text in busy:
        numbers, colon, quantum = text.partition(":")
        if not (colon and quantum.isdecimal() and int(quantum)):
            raise InputError("--busy", f"{text!r} is not MACHINES:QUANTUM with a quantum of at least 1, as 0-3:2")
        busy_until[int(quantum)] = busy_until.get(int(quantum), 0) | _numbers(numbers, "--busy")

    idle = all_machines
    for machine_bits in busy_until.values():
        idle &= ~machine_bits

    return solve(PlanProblem((expression,), members, MachineSupply(idle, tuple(sorted(busy_until.items())))))


def _numbers(text: str, place: str) -> int:
    machine_bits = 0

    for part in text.split(","):
        shape = ITEM.fullmatch(part.strip())
        low, high = (int(shape[1]), int(shape[2] or shape[1])) if shape else (1, 0)
        if not low <= high < MACHINES_MAX:
            raise InputError(place, f"{part!r} is no machine or range of machines below {MACHINES_MAX}, as 0-3")
        machine_bits |= ((1 << (high - low + 1)) - 1) << low

    return machine_bits


def _shown(machines: int) -> str:
    from volery.policies.match import positions

    return ", ".join(map(str, positions(machines)))
