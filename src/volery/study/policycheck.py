"""Does a policy keep what every policy has to? `volery policy check`.

States of a scheduler, made from seeds, are shown to the policy. It has to decide the same on an equal state with an
equal stream, in another process with other hashes too; to leave the state as it was; to decide for what it was offered;
to import nothing that reads a clock, the machine or the network; and to be quick enough for a scheduler's inner loop.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from volery.architectures.pipeline.policies import (
    METHODS,
    Candidates,
    Choice,
    Eviction,
    JobRecord,
    Manager,
    Offer,
    Policy,
    State,
    Supply,
    Turn,
    View,
    Waiting,
    names,
    parse,
)
from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND, Amounts, Cluster, Task
from volery.core.resources import SLOT
from volery.core.stages import Stage
from volery.core.streams import Streams
from volery.policies.match import positions

SEEDS: Final = (0, 1, 2)
MACHINES: Final = 1_000
WAITING: Final = 200
USERS: Final = ("ann", "bob", "eve", "")
HASH_SEEDS: Final = ("1", "2718")
BUDGET_US: Final = 1_000
"""CPU time of a decision: at a thousandth of a second a scheduler places a thousand tasks per second."""
PERIODIC: Final = {Stage.T12: 100, Stage.R6: 100, Stage.R7: 100}
"""Stages that decide once a period for all machines: how many times the budget that may take."""
TIMES: Final = {Stage.J5: "stage_us", Stage.T5: "stage_us", Stage.J7: "clean_us", Stage.T8: "clean_us"}
"""Stages whose policies give a time, and their method."""
TIMED_CALLS: Final = 200
IMPURE_MODULES: Final = {
    "asyncio",
    "datetime",
    "multiprocessing",
    "os",
    "random",
    "requests",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
    "urllib",
    "uuid",
}
IMPURE_CALLS: Final = {"__import__", "eval", "exec", "globals", "hash", "id", "input", "open", "print"}
PURE_NAMES: Final = frozenset({("random", "Random"), ("datetime", "timedelta")})


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check of a policy."""

    check: str
    passed: bool
    detail: str


class Example:
    """A state of a scheduler, made from a seed: 1,000 machines, tasks that run on most of them and tasks that wait."""

    def __init__(self, seed: int) -> None:
        stream = Streams(seed).of("policy check")
        constraints = tuple(stream.getrandbits(4) for _ in range(MACHINES))
        capacities = tuple((stream.choice((4000, 16_000, 64_000)), stream.choice((8192, 65_536))) for _ in constraints)
        speeds = tuple(stream.choice((3500, 4100)) for _ in constraints)
        cluster = Cluster(
            constraints,
            (1,) * MACHINES,
            "policy check",
            ("cpu_milli", "memory_mb"),
            capacities,
            speeds=speeds,
            reference_speed=3500,
        )

        self.state = State(cluster, half_life_us=86_400 * SECOND)
        self.state.priorities = {}
        self.state.held_by = {}
        self.view = View(self.state)
        self.draw = stream
        self._access = self.state.access(None)
        self._numbered = 0

        self.state.now = 3600 * SECOND
        jobs = [self._job(number) for number in range(60)]

        for _ in range(3 * MACHINES):
            waiting = self._wait(stream.choice(jobs))
            among = Candidates(self.state, waiting, waiting.kind.suitable)
            if among.vector:
                self.state.launched(waiting, stream.choice(list(among)), stream.randrange(3600 * SECOND)).sent = True
            else:
                del self.state.waiting[waiting.task.id]

        for _ in range(WAITING):
            self._wait(stream.choice(jobs))

    def _job(self, number: int) -> JobRecord:
        draw = self.draw
        deadline = draw.choice((-1, 4000 * SECOND, draw.randrange(4000, 9000) * SECOND))
        record = JobRecord(
            number,
            draw.choice(USERS),
            draw.randrange(12),
            deadline,
            draw.randrange(3600 * SECOND),
            draw.randrange(1, 7200) * SECOND,
            draw.randrange(1, 50),
            eligible=True,
        )

        self.state.jobs[number] = record
        self.state.eligible[record.user] = self.state.eligible.get(record.user, 0) + 1
        return record

    def _wait(self, job: JobRecord) -> Waiting:
        draw = self.draw
        request = (draw.choice((100, 500, 1000, 2500, 4000)), draw.choice((64, 512, 2048, 8000)))
        task = Task(self._numbered, job.id, draw.choice((0, 0, 1, 2, 5)), job.estimate_us, b"", request)
        work = self.state.work_us(task)

        job.work_us += work
        job.left_us += work
        kind = self.state.kind(task, self._access)

        rank = job.estimate_us * draw.randrange(1, 4)
        waiting = Waiting(task, job, kind, self._numbered, self.state.now, work, rank, job.submit_us)
        self.state.waiting[task.id] = waiting
        self._numbered += 1
        return waiting

    def candidates(self, waiting: Waiting) -> Candidates | None:
        """The machines that a task fits now."""
        candidates = Candidates(self.state, waiting, waiting.kind.suitable & self.state.online)
        return candidates if candidates.vector else None

    def managers(self) -> list[Manager]:
        """Some local resource managers."""
        draw = Random(self._numbered)
        return [Manager(k, (64_000, 8192), (draw.randrange(-4000, 64_000), 512), k % 9, 10) for k in range(8)]

    def supplies(self) -> list[Supply]:
        """Some states of machines that come and go, from nothing on to everything."""
        capacity, period_us, boot = self.state.capacity[0], 60 * SECOND, 120 * SECOND
        used_units = sum([used[0] for used in self.state.used.values()])
        coming = ((self.state.now + boot // 2, 16_000),)
        peaks = tuple([capacity * (hour % 24) // 24 for hour in range(50)])
        return [
            Supply(0, (), capacity, 0, 4000, period_us, boot),
            Supply(
                capacity - 16_000,
                coming,
                capacity,
                used_units,
                100_000,
                period_us,
                boot,
                self.state.now - 90 * SECOND,
                peaks,
            ),
            Supply(capacity, (), capacity, used_units, 0, period_us, boot, 0, peaks[:3]),
        ]

    def offers(self) -> list[Offer]:
        """Some machines to provision, or to release."""
        capacities, speeds, now = self.state.capacities, self.state.cluster.speeds, self.state.now
        return [
            Offer(
                machine,
                capacities[machine][0],
                0.5 + capacities[machine][0] / 1000,
                speeds[machine],
                now + machine % 9 * SECOND * 20,
            )
            for machine in range(0, MACHINES, 3)
        ]

    def fingerprint(self) -> str:
        """All that a policy may read, as text."""
        state = self.state
        records = [msgspec.json.encode(record).decode() for record in state.jobs.values()]
        tasks = [
            repr((w.task, w.number, w.ready_us, w.work_us, w.rank_us, w.came_us, w.attempt))
            for w in state.waiting.values()
        ]
        runs = [repr((r.task.id, r.machine, r.start_us, r.expected_end_us)) for r in state.running.values()]
        other_state = repr((state.index.free, state.used, state.online, state.now, state.resume, state.eligible))
        return "\n".join([*records, *tasks, *runs, other_state, state.free_table().tobytes().hex()])


def decisions(stage: Stage, policy: Policy, example: Example) -> Iterator[tuple[Any, str]]:
    """The decisions of a policy on an example, and their defect, or ""."""
    decide: Any = policy
    view, draw = example.view, Random(11)

    tasks = list(example.state.waiting.values())
    if stage is Stage.R5:
        for task in tasks:
            machines = example.candidates(task)
            if machines is not None:
                yield _selected(decide.select(view, task, machines, draw), machines)
    elif stage is Stage.M5:
        managers = example.managers()
        for task in tasks:
            number = decide.select(view, task, managers, draw)
            is_known = any(number == manager.number for manager in managers)
            yield number, "" if is_known else f"there is no manager {number!r}"
    elif stage is Stage.M4:
        for task in tasks:
            for manager in example.managers():
                yield _truth(decide.usable(view, task, manager))
    elif stage is Stage.M1:
        yield from (_truth(decide.brokered(view, task)) for task in tasks)
    elif stage is Stage.R2:
        for user in USERS:
            machines_of = decide.machines(view, user)
            numbers = None if machines_of is None else list(machines_of)
            is_wrong = numbers is not None and not all(isinstance(machine, int) for machine in numbers)
            yield numbers, "machines are numbers" if is_wrong else ""
    elif stage in TIMES or stage is Stage.T6:
        yield from _upkeep(stage, decide, example)
    elif stage is Stage.T9:
        for run in view.running():
            pair: tuple[Any, Any] = decide.copies(view, run), decide.ask_us(view, run)
            are_numbers = all(isinstance(number, int) for number in pair)
            yield pair, "" if are_numbers and pair[0] >= 1 else "at least one runs"
    elif stage is Stage.T12:
        moves = list(decide.moves(view))
        astray = [move for move in moves if move.task not in example.state.running]
        yield [decide.every_us(), moves], f"{astray[0]} moves what does not run" if astray else ""
    elif stage is Stage.R7:
        for supply in example.supplies():
            units = decide.units(view, supply)
            yield units, "" if isinstance(units, int) else f"{units!r} is no number of processors"
    elif stage is Stage.R6:
        yield from _machines_chosen(decide, example)
    elif stage is Stage.R3:
        waits = decide.waits_us()
        times = waits is None or (len(waits) == 2 and all(isinstance(number, int) and number >= 0 for number in waits))
        yield waits, "" if times else "waits are two times"
    elif stage is Stage.T11:
        period = decide.period_us()
        yield period, "" if period is None or (isinstance(period, int) and period >= 0) else "a period is a time"
    elif stage is Stage.T10:
        yield from (_evicted(decide.evict(view, task, positions(task.kind.suitable)), view, task) for task in tasks)
    elif stage is Stage.J2:
        for job in example.state.jobs.values():
            yield [repr(decide.line(job)), decide.eligible(view, job)], ""
    elif hasattr(policy, "turns"):
        yield from _turns(decide, view, tasks)
    else:
        keys = [decide.key(view, task) for task in tasks]
        try:
            sorted(keys)
        except TypeError as error:
            yield keys[0], f"keys cannot be compared: {error}"
        for key in keys:
            yield repr(key), ""


def _upkeep(stage: Stage, decide: Any, example: Example) -> Iterator[tuple[Any, str]]:
    """Times for files before and after a task or job, and decisions on reports."""
    view = example.view
    if stage is Stage.T6:
        for run in view.running():
            decided = decide.every_us(), decide.ends(view, run), decide.reserved(view, run), decide.tolerant(run.job)
            are_amounts = isinstance(decided[0], int) and isinstance(decided[2], int) and 0 <= decided[2] <= 1000
            are_flags = all(isinstance(flag, bool) for flag in decided[1::2])
            yield decided, "" if are_amounts and are_flags else f"{decided!r} is no decision"
        return

    for task_or_job in (*example.state.waiting.values(), *example.state.jobs.values()):
        span = getattr(decide, TIMES[stage])(view, task_or_job)
        yield span, "" if isinstance(span, int) and span >= 0 else f"{span!r} is no time in microseconds"


def _selected(selected: Any, machines: Candidates) -> tuple[Any, str]:
    machine = selected.machine if isinstance(selected, Choice) else selected
    is_wrong = machine is not None and machine not in machines
    return selected, f"machine {machine!r} was no candidate" if is_wrong else ""


def _machines_chosen(decide: Any, example: Example) -> Iterator[tuple[Any, str]]:
    for supply, most in itertools.product(example.supplies(), (1, 20_000)):
        offers = example.offers()
        yield _chosen(list(decide.provision(example.view, supply, offers, most)), offers)
        yield _chosen(list(decide.release(example.view, supply, offers, most)), offers)


def _chosen(machines: list[Any], offers: list[Offer]) -> tuple[Any, str]:
    unoffered = set(machines) - {offer.machine for offer in offers}
    return machines, f"machines {sorted(unoffered)} were not offered" if unoffered else ""


def _truth(answer: Any) -> tuple[Any, str]:
    return answer, "" if isinstance(answer, bool) else f"{answer!r} is neither True nor False"


def _evicted(eviction: Eviction | None, view: View, task: Waiting) -> tuple[Any, str]:

    if eviction is None:
        return eviction, ""
    runs = {run.task.id: run for run in view.losable(eviction.machine)}
    losers = [runs[number] for number in eviction.tasks if number in runs]

    if len(losers) < len(eviction.tasks):
        return eviction, f"some of the tasks {eviction.tasks} cannot be ended on machine {eviction.machine}"
    is_enough = view.makes_room(task, eviction.machine, losers)
    return eviction, "" if is_enough else f"that makes no room for task {task.task.id} on machine {eviction.machine}"


def _turns(decide: Any, view: View, tasks: list[Waiting]) -> Iterator[tuple[Any, str]]:
    counts: dict[Any, int] = {}
    least: dict[Any, Amounts] = {}

    for task in tasks:
        line, request = decide.line(task), task.task.request or SLOT
        counts[line] = counts.get(line, 0) + 1
        least[line] = tuple(map(min, least.get(line, request), request))

    for round_ in range(20):
        lines = [
            Turn(line, count, (7 * k + round_) % 5, round_ % 3, least[line])
            for k, (line, count) in enumerate(counts.items())
        ]
        order = list(decide.turns(view, lines))
        yield repr(order[0]) if order else None, "" if order and order[0] in counts else "no line was given a turn"


def fingerprints(stage: Stage, policy: Policy) -> list[str]:
    """The decisions on each example, as text."""
    return [repr([decided for decided, _ in decisions(stage, policy, Example(seed))]) for seed in SEEDS]


def check_policy(stage: Stage, text: str, budget_us: float = BUDGET_US) -> list[CheckResult]:
    """Judge a policy.

    Args:
        text: its name, with parameters as `NAME/parameter:value/...`.

    Raises:
        InputError: there is no such policy.
    """
    policy = parse(stage, text, f"{stage}")
    return [
        _check_decisions(stage, policy),
        _check_determinism(stage, text, policy),
        _check_view(stage, policy),
        _check_source(type(policy)),
        _check_budget(stage, policy, budget_us),
    ]


def _check_decisions(stage: Stage, policy: Policy) -> CheckResult:
    count = 0
    for seed in SEEDS:
        for decided, problem in decisions(stage, policy, Example(seed)):
            count += 1
            if problem:
                return CheckResult("decisions", False, f"decided {decided!r}: {problem}")
    return CheckResult("decisions", True, f"{count} decisions, each for what was offered")


def _check_determinism(stage: Stage, text: str, policy: Policy) -> CheckResult:
    decided_here = fingerprints(stage, policy)
    # A policy with a state of its own would decide otherwise when it is made anew.
    if fingerprints(stage, parse(stage, text, f"{stage}")) != decided_here:
        return CheckResult("determinism", False, "on an equal state, with an equal stream, it decided something else")
    module = "import sys; from volery.study.policycheck import elsewhere; elsewhere(*sys.argv[1:])"

    # The order of a set of texts depends on the hash seed alone.
    for hash_seed in HASH_SEEDS:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        answer = subprocess.run(  # noqa: S603 - our own interpreter runs our own module
            [sys.executable, "-c", module, stage.value, text], env=environment, capture_output=True, check=False
        )
        if answer.returncode:
            return CheckResult("determinism", False, f"in another process it failed: {answer.stderr.decode()[-300:]}")
        if json.loads(answer.stdout) != decided_here:
            return CheckResult("determinism", False, f"with PYTHONHASHSEED={hash_seed} it decided something else")
    return CheckResult("determinism", True, "the same in three processes with different hashes")


def elsewhere(stage: str, text: str) -> None:
    """Print what is decided, as JSON: what another process is started for."""
    sys.stdout.write(json.dumps(fingerprints(Stage(stage), parse(Stage(stage), text, stage))))


def _check_view(stage: Stage, policy: Policy) -> CheckResult:
    example = Example(SEEDS[0])

    fingerprint = example.fingerprint()
    for _ in decisions(stage, policy, example):
        pass

    if example.fingerprint() != fingerprint:
        return CheckResult("purity", False, "it changed what it was shown")
    return CheckResult("purity", True, "what it was shown is as it was")


def _check_source(policy: type[Policy]) -> CheckResult:
    source = inspect.getsourcefile(policy)

    if source is None:
        return CheckResult("imports", False, "its source cannot be found, so that it cannot be judged")
    tree = ast.parse(Path(source).read_text(encoding="utf-8"), source)

    impurities = [f"line {line}: {deed}" for line, deed in _impure(tree)]
    if impurities:
        return CheckResult(
            "imports", False, "; ".join(impurities) + "; what is drawn comes from the stream, the time from view.now"
        )
    return CheckResult("imports", True, "no clock, no input or output, no entropy of its own")


def _impure(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in IMPURE_MODULES:
                    yield node.lineno, f"imports {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            root = (node.module or "").partition(".")[0]
            for alias in node.names:
                if root in IMPURE_MODULES and (root, alias.name) not in PURE_NAMES:
                    yield node.lineno, f"imports {alias.name} from {node.module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, f"calls {node.func.id}"


def _check_budget(stage: Stage, policy: Policy, budget_us: float) -> CheckResult:

    calls, spent_s = 0, 0.0
    for seed in SEEDS:
        example = Example(seed)
        # The table is made once per state, and is not the policy's cost.
        example.state.free_table()
        began = time.process_time()
        for _ in decisions(stage, policy, example):
            calls += 1
            if calls >= TIMED_CALLS * (seed + 1):
                break
        spent_s += time.process_time() - began

    each_us, budget_us = spent_s / calls * 1e6, budget_us * PERIODIC.get(stage, 1)
    detail = f"{each_us:.0f} us of CPU time a decision on {MACHINES:,} machines; {budget_us:.0f} are allowed"
    return CheckResult("budget", each_us <= budget_us, detail)


def find_stage(name: str) -> list[Stage]:
    """The stages that have a policy of this name.

    Raises:
        InputError: there is none.
    """
    bare = name.partition("/")[0]

    stages = [stage for stage in METHODS if bare in names(stage)]
    if not stages:
        known_names = {known_names for stage in METHODS for known_names in names(stage)}
        raise InputError("policy", f"no stage has a policy {bare!r}" + suggestion(bare, known_names))
    return stages
