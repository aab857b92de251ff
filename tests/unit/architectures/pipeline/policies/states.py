"""A scheduler's state with tasks that wait and run, made by hand."""

from __future__ import annotations

from random import Random

from volery.architectures.pipeline.policies import Candidates, JobRecord, State, View, Waiting
from volery.architectures.pipeline.policies.state import Average
from volery.core.model import SECOND, Amounts, Cluster, Task


class Made:
    """A state whose tasks are numbered as they come.

    Args:
        cluster: of the state.
        half_life_us: of averages.
    """

    def __init__(self, cluster: Cluster, half_life_us: int = 0) -> None:
        self.state = State(cluster, half_life_us=half_life_us)
        self.view = View(self.state)
        self.draw = Random(7)
        self.everybody = self.state.access(None)

    def job(self, number: int, user: str = "", **given: int) -> JobRecord:
        record = JobRecord(
            number,
            user,
            given.get("priority", 0),
            given.get("deadline_us", -1),
            given.get("at", 0),
            given.get("estimate_us", SECOND),
            given.get("task_count", 1),
        )
        return self.state.jobs.setdefault(number, record)

    def wait(self, job: JobRecord, request: Amounts = (), constraints: int = 0, estimate_us: int = SECOND) -> Waiting:
        number = len(self.state.waiting) + len(self.state.running)
        task = Task(number, job.id, constraints, estimate_us, b"", request)
        kind = self.state.kind(task, self.everybody)
        waiting = Waiting(task, job, kind, number, self.state.now, self.state.work_us(task), estimate_us, job.submit_us)
        self.state.waiting[number] = waiting
        return waiting

    def run(self, job: JobRecord, machine: int, request: Amounts = (), estimate_us: int = SECOND) -> None:
        self.state.launched(self.wait(job, request, 0, estimate_us), machine, self.state.now)

    def average(self, user: str, value: float) -> None:
        average = self.state.averages[user] = Average()
        average.value = value

    def candidates_exist(self, job: JobRecord, request: Amounts) -> bool:
        waiting = self.wait(job, request)
        del self.state.waiting[waiting.task.id]
        return bool(self.state.index.fitting(waiting.kind.need, waiting.kind.suitable))

    def candidates(self, waiting: Waiting) -> Candidates:
        return Candidates(self.state, waiting, waiting.kind.suitable & self.state.online)


def cores(*machines: int, speeds: tuple[int, ...] = ()) -> Cluster:
    """Machines with these numbers of cores."""
    count = len(machines)
    capacities = tuple((each,) for each in machines)
    return Cluster(
        (0,) * count, (1,) * count, "cores", ("cores",), capacities, speeds=speeds, reference_speed=1 if speeds else 0
    )


def pairs(*machines: Amounts) -> Cluster:
    """Machines with these amounts of cpu and memory."""
    count = len(machines)
    return Cluster((0,) * count, (1,) * count, "pairs", ("cpu_milli", "memory_mb"), machines)
