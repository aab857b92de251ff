"""`volery calibrate`: what turns, events and launches cost on this machine, as a file that the lab reads."""

from __future__ import annotations

import gc
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from volery.cli.load import load_watcher
from volery.cli.options import AsJson, Replace, option
from volery.cli.output import live_extra, print_json, print_table
from volery.lab.progress import OneLine

if TYPE_CHECKING:
    from volery.core.costs import CostModel, HostCosts
    from volery.core.trace import Trace
    from volery.live.calibration import TimedHost
    from volery.live.config.federation import Federation

HOST = "live"
CLUSTERS = 3
GMS = 2
PACES = ((0.02, 1500), (0.1, 350), (0.5, 80))
"""Mean task duration in seconds and jobs of a short load each: costs depend on how long a host has rested."""
FANOUT = "geometric:10"
APART_PACES = ((0.2, 400), (0.1, 400))
"""Over a broker, where frames between turns are most of the work."""
FRAME = bytes(200)
"""About the size of a frame with a few messages."""


def calibrate(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The TOML file to write.")] = Path(
        "costs.toml"
    ),
    architecture: Annotated[
        list[str] | None,
        typer.Option("-a", "--architecture", help="Which schedulers; repeatable.", show_default="megha, pigeon"),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the federation that is measured.")] = 300,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|SPEC", help="Work to measure under; repeatable.", show_default="half load at three paces"
        ),
    ] = None,
    broker: Annotated[
        str | None, option("Measure hosts that are processes of their own, over this NATS server.", form="URL")
    ] = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a live host costs on this machine per role, for `volery compare --costs FILE`."""
    from volery.core.costs import CostModel
    from volery.core.errors import InputError
    from volery.workload import load_workload

    with live_extra():
        import volery.live.load  # noqa: F401 - it imports all that the extra brings
    from volery.study import write_costs

    # Refused before the measurement, not after it.
    if output.exists() and not force:
        raise InputError(str(output), "exists already; give --force to replace it, or another name")

    architectures = architecture or ["megha", "pigeon"]
    # Apart, each frame goes through the broker: the paces are lower there.
    specs = trace or paces(nodes, PACES if broker is None else APART_PACES)
    works = [load_workload(spec, seed=1, has_gangs=False)[0] for spec in specs]

    if broker is None:
        model = CostModel(delay_us=hop_us(), hosts={HOST: measure(architectures, works, nodes, as_json)})
    else:
        model = measure_apart(architectures, works, nodes, broker)

    write_costs(model, output, _heading(architectures, nodes, broker), force=force)
    if as_json:
        print_json(model)
    else:
        _print_model(model, output)


def paces(nodes: int, of: Sequence[tuple[float, int]] = PACES) -> list[str]:
    """Half load on these nodes, at several paces."""
    form = "poisson:load=0.5,workers={},fanout={},mean={},jobs={}"
    return [form.format(nodes, FANOUT, mean, jobs) for mean, jobs in of]


def measure(architectures: list[str], works: list[Trace], nodes: int, silent: bool) -> HostCosts:
    """Run every architecture under every work on one timed host, and fit the costs.

    Raises:
        InputError: an architecture does not exist, or does not fit the nodes.
    """
    from volery.live.calibration import host_costs

    return host_costs([timed_load(name, work, nodes, silent) for name in architectures for work in works])


def measure_apart(architectures: list[str], works: list[Trace], nodes: int, broker: str) -> CostModel:
    """Run every architecture under every work, each role a process of its own, and fit the costs of each.

    Raises:
        InputError: an architecture does not exist, does not fit the nodes, or no broker answers.
    """
    from volery.architectures import choose
    from volery.cli.generator import federation_of
    from volery.core.component import role_of
    from volery.core.costs import CostModel
    from volery.live.calibration import FramingHost, model_of
    from volery.live.load import load_apart

    measurements = []
    with tempfile.TemporaryDirectory(prefix="volery-") as name:
        for architecture in architectures:
            federation = federation_of(architecture, nodes, 1, CLUSTERS, GMS, Path(name), 0)
            roles = dict.fromkeys(map(role_of, federation.plan.build().components))
            file = msgspec.structs.replace(
                federation.file,
                broker=broker,
                api="127.0.0.1:0",
                executor="sleep",
                reports=True,
                folder="federation",
                hosts={role: [f"{role}/*"] for role in roles},
            )
            measurements += [load_apart(file, Path(name), choose, work, FramingHost).notes for work in works]

    costs, frames = model_of(measurements, 0.0)
    return CostModel(delay_us=sorted(frames.delays_us)[len(frames.delays_us) // 2], hosts=costs, frames=frames)


def hop_us() -> int:
    """The time of a frame between two hosts in this process, us."""
    import asyncio

    from volery.live.calibration import hop_us as measured_us
    from volery.live.transport.transport import Memory

    medium = Memory()
    return round(asyncio.run(measured_us(medium.transport(), medium.transport(), FRAME)))


def timed_load(architecture: str, work: Trace, nodes: int, silent: bool) -> TimedHost:
    """A host that has timed itself under a load of sleeping tasks."""
    from volery.cli.generator import federation_of

    with tempfile.TemporaryDirectory(prefix="volery-") as name:
        return timed_run(federation_of(architecture, nodes, 1, CLUSTERS, GMS, Path(name), 0), work, silent)


def timed_run(federation: Federation, work: Trace, silent: bool) -> TimedHost:
    """The one host of a federation, which has timed itself under a load of sleeping tasks."""
    from volery.live.calibration import TimedHost
    from volery.live.clock import run_loop
    from volery.live.load import load
    from volery.live.node.sleep import SleepExecutor

    hosts: list[TimedHost] = []

    # `load` makes its host itself: the subclass catches it.
    class Kept(TimedHost):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)
            hosts.append(self)

    async def main() -> None:
        executor = SleepExecutor(lambda task: work.duration_us[task.id])
        with OneLine(silent, when_moved=True) as line:
            await load(federation, work, executor, watch=load_watcher(line, work.job_count), make_host=Kept)

    # A collection of what was made before would count into the first turns.
    gc.collect()
    run_loop(main())
    return hosts[0]


def _heading(architectures: list[str], nodes: int, broker: str | None) -> str:
    placement = "in one live process" if broker is None else "each role a process"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"Costs of {' and '.join(architectures)} with {nodes} nodes, {placement}, by `volery calibrate`\n"
        f"on {platform.machine()}, {python}. Microseconds; docs/reference/costs.md describes the model.\n"
        f"Use: volery compare {architectures[0]} --costs THIS_FILE ..."
    )


def _print_model(model: CostModel, output: Path) -> None:
    from volery.core.costs import EventCost

    heads = ("each", "per task", "after a rest")
    cells = []
    for name, host in model.hosts.items():
        rows = [(role, event, cost) for role, events in host.roles.items() for event, cost in events.items()]
        parts = {part: getattr(host, part) for part in ("turn", "launch", "made", "written", "read")}
        framework_costs = [(name, part, cost) for part, cost in parts.items() if cost != EventCost()]
        for role, event, cost in [*rows, *framework_costs]:
            cells.append((role, event, f"{cost.event_us:.1f}", f"{cost.task_us:.2f}", f"{cost.rested_us:.1f}"))
    print_table(("role", "event", *heads), cells, title="Costs of live processes (us)", right=heads)

    typer.echo(f"a frame between two hosts: {model.delay_us} us")
    typer.echo(f"{output}: use it by `volery compare ... --costs {output}`")
