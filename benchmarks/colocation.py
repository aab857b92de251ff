"""Megha's tasks that burn processor time side by side, and what it does to allocation times (figure 12 of 2021).

The prototype's tasks end when they have consumed what they ask for: 0.5 cores for 2 s is one core-second. On nodes with
other tasks they get it later, hold their resources longer, and others wait. Here:

- three Local Masters with two nodes each, two Global Masters; a node has 1,000 thousandths of a processor, a task asks
  for 500, so that two tasks share a node;
- a node stands for a sixth of this machine: a hundred and twenty nodes would get a sixtieth of a core each, less than
  the start of a process takes. The paper divides processors by 400 for the same reason;
- a task is a process that burns its share of each tenth of a second, as the quota of a control group would grant it,
  and ends when it has consumed share x duration. Where control groups may limit processors they hold it to that share,
  too; elsewhere it is tied to one processor (docs/decisions/0029);
- `alone` has room for one task a node, and half of it is in use; `light` and `heavy` have room for two, and load 50
  and 90 %. The samples google_19 and alibaba are not public: exponential tasks of 2 s stand in, in jobs of two;
- `crowded` is `heavy` on nodes that are promised half as much again as they have: work for 1.35 times what there is;
- `scaled` has the prototype's nodes of two processors and 4 GB, and requests of Alibaba's tasks divided as there
  (section V-A): processors by 400, memory by 50. What was divided by 400 is not printed. Half a core would become 1.25
  thousandths, of which 1,600 fit on a node, so that the 8,000 tasks of the sample never wait on 120 nodes. The table
  counts hundredths of a core, 50 for half a core; divided by 400 they are 125 thousandths, 16 tasks a node: that is
  taken. Tasks of 10 s stand in, or starts of processes would outweigh them. Memory is asked for and not consumed.

The lab runs the same work twice: with the durations that were asked for (the paper's simulator, which has no
interference), and with those that were lived.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from volery import metrics, sim
from volery.architectures import choose
from volery.cli.calibrate import timed_run
from volery.core.costs import HostCosts
from volery.core.model import SECOND, TaskId
from volery.core.trace import Trace
from volery.live.calibration import host_costs
from volery.live.clock import run_loop
from volery.live.command import Command, encode_payload
from volery.live.config.federation import Federation, FederationFile, resolve
from volery.live.config.limits import NodeRules
from volery.live.config.plan import FederationPlan
from volery.live.load import Loaded, as_lived, load
from volery.live.node.agent import NodeAgent
from volery.metrics.tasks import allocation_parts
from volery.workload import ask, load_trace
from volery.workload.models import load_model

LMS, GMS, NODES = 3, 2, 6
NODE_MILLI: Final = 1000
TASK_MILLI: Final = 500
MEAN_S, FANOUT = 2.0, 2
MODEL: Final = "alibaba-like"
CPU_DIVISOR, MEMORY_DIVISOR = 400, 50
MEMORY_KB: Final = 4 << 20
SCALED_MEAN: Final = 5
"""Times that a task of a level with divided requests lasts as long as others."""
HEARTBEAT_S: Final = 1.0
"""Of Local Masters; the paper's 10 s are five times a task here."""
BURN: Final = """
import sys, time
share, period = float(sys.argv[1]), 0.1
goal = share * float(sys.argv[2]) + (time.thread_time() if sys.argv[3:] else 0.0)
while (spent := time.thread_time()) < goal:
    began, due = time.monotonic(), min(goal, spent + share * period)
    while time.thread_time() < due:
        pass
    time.sleep(max(0.0, began + (due - spent) / share - time.monotonic()))
"""
"""Burns a share of a processor, a tenth of a second at a time, until it has consumed share x seconds.

With a third argument the start of the process counts for nothing: of a small share it is half a second of running.
"""


class Level(NamedTuple):
    """How many tasks share a node, their load, and how much more a node is promised than it has.

    Attributes:
        milli: what a node offers, in thousandths of a processor of its own.
        is_scaled: tasks request what Alibaba's do, divided as for the prototype, and not all the same.
        node_milli: the same thousandths of the part of this machine that a node stands for.
    """

    milli: int
    load: float
    promised: float = 1.0
    is_scaled: bool = False
    node_milli: int = NODE_MILLI

    @property
    def task_milli(self) -> float:
        """What a task asks for on average."""
        if not self.is_scaled:
            return TASK_MILLI
        weights_and_milli = [(kind.weight, scaled(kind.request)[0]) for kind in load_model(MODEL).classes]
        return sum(weight * milli for weight, milli in weights_and_milli) / sum(
            weight for weight, _ in weights_and_milli
        )


LEVELS: Final = {
    "alone": Level(TASK_MILLI, 0.5),
    "light": Level(NODE_MILLI, 0.5),
    "heavy": Level(NODE_MILLI, 0.9),
    "crowded": Level(NODE_MILLI, 0.9, 1.5),
    "scaled": Level(2000, 0.5, is_scaled=True, node_milli=2000),
}


def scaled(request: Sequence[int]) -> tuple[int, int]:
    """Thousandths of a processor, and kilobytes, of a request in thousandths and megabytes (section V-A)."""
    cpu_milli, memory_mb = request
    hundredths = cpu_milli // 10
    return hundredths * 1000 // CPU_DIVISOR, memory_mb * 1024 // MEMORY_DIVISOR


def federation_of(level: Level, folder: Path) -> Federation:
    """A federation in one process."""
    capacity = {"cpu_milli": level.milli} | ({"memory_kb": MEMORY_KB} if level.is_scaled else {})
    file = FederationFile(
        machines=[{"count": NODES, "capacity": capacity}],
        architecture="megha-2021",
        reports=False,
        parameters={"lms": LMS, "gms": GMS, "heartbeat_s": HEARTBEAT_S},
        folder=str(folder.absolute()),
    )
    return resolve(file, Path(), choose)


def work_of(level: Level, span_s: float, mean_s: float, seed: int = 0) -> Trace:
    """Jobs of two tasks, each of which asks for half a node, or for what Alibaba's ask for, divided."""
    mean_s *= SCALED_MEAN if level.is_scaled else 1
    places = round(NODES * level.milli / level.task_milli)
    jobs = max(2, round(level.load * places * span_s / (FANOUT * mean_s)))
    spec = f"poisson:load={level.load},workers={places},fanout={FANOUT},mean={mean_s},jobs={jobs}"
    trace, asked = load_trace(spec, seed=seed), array("H", [0])
    if level.is_scaled:
        trace = ask(trace, MODEL, seed)
        amounts = tuple(scaled(request) for request in trace.requests)
        return msgspec.structs.replace(trace, resources=("cpu_milli", "memory_kb"), requests=amounts)
    return msgspec.structs.replace(
        trace, resources=("cpu_milli",), requests=((TASK_MILLI,),), request=asked * trace.task_count
    )


def share_of(level: Level, milli: float = 0) -> float:
    """The part of a processor that a task consumes while it runs; 0: the usual task of the level."""
    return len(os.sched_getaffinity(0)) / NODES * (milli or level.task_milli) / level.node_milli * level.promised


def beyond_one(levels: Iterable[str]) -> list[str]:
    """The levels at which a task would have to burn more than one processor, which its one thread cannot."""
    return [name for name in levels if share_of(LEVELS[name]) > 1]


def live(federation: Federation, trace: Trace, level: Level) -> tuple[Loaded, str]:
    """Run real processes, and tell what holds them."""
    found: list[tuple[Loaded, str]] = []

    def burning(task: TaskId) -> bytes:
        share = share_of(level, trace.requests[trace.request[task]][0])
        words = (sys.executable, "-S", "-c", BURN, f"{share:.6f}", f"{trace.duration_us[task] / SECOND:.6f}")
        words += ("without the start",) if level.is_scaled else ()
        return encode_payload(Command(words, cpu_milli=max(1, round(share * 1000))))

    async def main() -> None:
        agent = NodeAgent(federation.folder / "tasks", rules=NodeRules(amounts=True))
        found.append((await load(federation, trace, agent, burning), agent.held))

    gc.collect()
    run_loop(main())
    return found[0]


def allocation_ms(plan: FederationPlan, work: Trace, costs: HostCosts) -> dict[str, float]:
    """Allocation times in the lab."""
    records = sim.simulate(plan.build(), work, plan.cluster, options=sim.Options(hosts={"live": costs}))
    return figures_ms(dict(allocation_parts(records))["total"])


def figures_ms(times_us: Any) -> dict[str, float]:
    """Mean and percentiles, milliseconds."""
    named = {"mean": np.mean(times_us)} | {f"p{at}": np.percentile(times_us, at) for at in (50, 90, 99)}
    return {name: round(float(value) / 1000, 3) for name, value in named.items()}


def measured(name: str, span_s: float, mean_s: float) -> dict[str, Any]:
    """A level of co-location, live and in the lab."""
    level = LEVELS[name]
    with tempfile.TemporaryDirectory() as folder:
        sleeping = federation_of(level, Path(folder))
        costs = host_costs([timed_run(sleeping, work_of(level, span_s / 4, mean_s / 4, seed=1), silent=True)])
    trace, before = work_of(level, span_s, mean_s), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(level, Path(folder))
        loaded, held = live(federation, trace, level)
    records, work = loaded.records, as_lived(loaded.records)
    asked, lived = np.array(trace.duration_us), np.array(work.duration_us)
    plain = msgspec.structs.replace(work, duration_us=trace.duration_us)
    found = {
        "name": "colocation",
        "level": name,
        "load": level.load,
        "tasks": trace.task_count,
        "failed": loaded.failed,
    }
    found["load_average"] = [round(before, 1), round(os.getloadavg()[0], 1)]
    found |= {"share": round(share_of(level), 3), "held": held}
    found["utilisation"] = round(metrics.mean_utilisation(records, federation.plan.cluster), 3)
    found["execution_delay_ms"] = figures_ms(lived - asked)
    found["stretch_p50"] = round(float(np.median(lived / asked)), 3)
    found["stretch_of_all"] = round(float(lived.sum() / asked.sum()), 3)
    found["allocation_ms"] = figures_ms(dict(allocation_parts(records))["total"])
    found["lab_as_asked_ms"] = allocation_ms(federation.plan, plain, costs)
    return found | {"lab_as_lived_ms": allocation_ms(federation.plan, work, costs)}


def colocations(levels: Iterable[str] = tuple(LEVELS), *, quick: bool = False) -> Iterator[dict[str, Any]]:
    """A line per level: forty seconds of submissions each, or four with shorter tasks."""
    for name in levels:
        yield measured(name, *((4.0, 0.4) if quick else (40.0, MEAN_S)))
