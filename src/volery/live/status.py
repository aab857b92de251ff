"""Status of jobs, tasks, nodes and forecasts, as the API sends it as JSON and describes it in OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from volery.core.forecast import DurationBases, MomentQuantiles, PreemptedJob
from volery.core.model import SUBMITTER

DEFAULT_PORT: Final = 8642
"""The API's port unless another is given."""

UNCONFINED: Final = "not confined: nothing limits memory and processors"
"""The words of views for tasks that nothing holds to an amount."""

LOG_OFFSET: Final = "volery-log-offset"
"""The header with the offset at which a piece of output begins: the one that was asked for, or after what is lost."""
STREAM: Final = "volery-stream"
"""The header with the name of a stream of events; a submission that names it has its job followed there, too."""
RESULTS_MAX: Final = 200
"""Results of callables that one request may ask for."""

JobState = Literal["pending", "running", "done", "failed", "cancelled"]
TaskState = Literal["pending", "running", "finished", "failed", "killed", "cancelled", "unsatisfiable", "unknown"]
NodeState = Literal["in use", "short", "drained", "lost"]
HostState = Literal["up", "opening", "lost", "unseen"]
ListedState = JobState | Literal["damaged"]
"""State of a job in a list; of a job whose row is damaged only the number and the reason are known."""
ENDED_JOBS: Final[frozenset[ListedState]] = frozenset({"done", "failed", "cancelled", "damaged"})
ENDED_TASKS: Final[frozenset[TaskState]] = frozenset({"finished", "failed", "killed", "cancelled", "unsatisfiable"})

FAILED_TASKS: Final[frozenset[TaskState]] = frozenset({"failed", "killed", "unsatisfiable", "unknown"})

AttributeValue = str | int
"""Value of a label, or of another attribute of a machine."""
UnixMicroseconds = Annotated[int, Meta(description="microseconds since 1970-01-01 UTC")]
Revision = Annotated[int, Meta(description="grows with every change of anything; the id of its event")]


Absences = Annotated[
    tuple[str, ...],
    Meta(description="a sentence about each host that does not answer, and about each that lacks something"),
]


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job, with its tasks counted by state."""

    id: int
    name: str
    user: str
    state: ListedState
    reason: Annotated[str, Meta(description="why it is not running or not done; empty when all is well")] = ""
    tasks: Annotated[int, Meta(description="how many tasks it has")]
    running: int = 0
    finished: int = 0
    failed: int = 0
    killed: int = 0
    unsatisfiable: Annotated[int, Meta(description="tasks whose constraints no machine meets")] = 0
    submitted_us: UnixMicroseconds
    started_us: UnixMicroseconds | None = None
    ended_us: UnixMicroseconds | None = None
    moved: Annotated[
        str, Meta(description="which scheduler has it instead of the usual one, and why; empty: the usual one has it")
    ] = ""
    revision: Revision

    @property
    def ended(self) -> bool:
        return self.state in ENDED_JOBS

    @property
    def ran_us(self) -> int | None:
        """The time from its first start to its end; None before that."""
        return _span_us(self.started_us, self.ended_us)


class TaskUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of an attempt, as far as the kernel of its machine reports it."""

    cpu_us: Annotated[int | None, Meta(description="processor time, microseconds")] = None
    memory_peak_bytes: Annotated[int | None, Meta(description="the most at once; null: not known")] = None
    out_of_memory: Annotated[bool, Meta(description="it was ended for wanting more than it had asked for")] = False
    held: Annotated[str, Meta(description="what held it to the amounts that it asked for; empty: nothing")] = ""


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as its last attempt left it."""

    job: int
    index: Annotated[int, Meta(description="its place in the job, from 0")]
    state: TaskState = "pending"
    reason: str = ""
    attempt: Annotated[int, Meta(description="0 is the first; restarts of the federation count on")] = 0
    node: str = ""
    exit_code: Annotated[int | None, Meta(description="-N: ended by signal N")] = None
    started_us: UnixMicroseconds | None = None
    ended_us: UnixMicroseconds | None = None
    folder: Annotated[str, Meta(description="on the node's host: holds stdout and stderr")] = ""
    revision: Revision = 0
    usage: Annotated[
        TaskUsage | None, Meta(description="of its last attempt, once that has ended; events leave it out")
    ] = None

    @property
    def ran_us(self) -> int | None:
        """The time that its last attempt took; None before its end."""
        return _span_us(self.started_us, self.ended_us)


def _span_us(started_us: int | None, ended_us: int | None) -> int | None:
    """The time between two moments; a store of an earlier version may have noted them by a clock that was set back."""
    return None if started_us is None or ended_us is None else max(0, ended_us - started_us)


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what its machine is, and what runs there."""

    address: str
    slots: int
    running: int
    drained: Annotated[bool, Meta(description="nothing more is placed there")] = False
    lost: Annotated[bool, Meta(description="it does not answer the component in charge of it")] = False
    shortage: Annotated[str, Meta(description="what its machine lacks, so that tasks wait there; empty: nothing")] = ""
    arch: str
    os: str
    kernel: str
    cores: int
    memory_mb: int
    labels: dict[str, AttributeValue]
    gpus: int = 0
    gpu: Annotated[str, Meta(description="what its GPUs are, as their driver calls the first")] = ""
    disk: Annotated[str, Meta(description="what the folder of its tasks lies on: ssd, hdd or unknown")] = "unknown"
    offers: Annotated[dict[str, int], Meta(description="amounts, where tasks ask for those and not for slots")] = {}
    held: Annotated[str, Meta(description="what holds tasks to the amounts that they ask for; empty: unknown")] = ""
    host: Annotated[str, Meta(description="the host of the federation that runs it; empty: unknown")] = ""
    hostname: Annotated[str, Meta(description="of the machine of that host; empty: not received yet")] = ""

    @property
    def state(self) -> NodeState:
        """The state of the node; a drained node that is lost is lost."""
        return "lost" if self.lost else "drained" if self.drained else "short" if self.shortage else "in use"


def held_by(components: Sequence[str], nodes: int) -> str:
    """Words for what a host holds, as `gm/0, 20 nodes`."""
    named = ("the API" if component == SUBMITTER else component for component in components)
    return ", ".join((*named, *((f"{nodes} node{'s' * (nodes != 1)}",) if nodes else ()))) or "nothing"


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A host: a process of the federation, what it holds and whether it answers."""

    name: str
    state: Annotated[
        HostState,
        Meta(
            description="up; opening: it runs, and waits for other hosts; lost: it does not answer; "
            "unseen: it has not answered since the API's host started"
        ),
    ]
    components: Annotated[tuple[str, ...], Meta(description="what it holds besides nodes; submitter: the API")]
    nodes: Annotated[int, Meta(description="how many it holds")]
    jobs: Annotated[int, Meta(description="that have not ended and are assigned to its schedulers")] = 0
    heard_us: Annotated[UnixMicroseconds | None, Meta(description="when its last message came; null: never")] = None
    version: Annotated[str, Meta(description="of Volery; empty: unknown")] = ""
    incarnation: Annotated[int, Meta(description="how often it has started; 0: unknown")] = 0
    hostname: Annotated[str, Meta(description="of its machine; empty: unknown")] = ""
    pid: Annotated[int | None, Meta(description="of its process there")] = None
    started_us: UnixMicroseconds | None = None
    waits_for: Annotated[tuple[str, ...], Meta(description="hosts without which it has not opened yet")] = ()

    @property
    def wait(self) -> str:
        """Words for what it waits for, as `waits for gm-0`; empty once it has opened."""
        return f"waits for {', '.join(self.waits_for)}" if self.state == "opening" else ""


class UserStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A user, with what is under way."""

    user: str
    share: Annotated[
        float | None, Meta(description="part of the federation below which no running task is taken away; null: none")
    ] = None
    weight: Annotated[int | None, Meta(description="by which it has that share; null: none")] = None
    jobs_pending: int = 0
    jobs_running: int = 0
    tasks_pending: int = 0
    tasks_running: int = 0


class ShareStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a user, or of an organisation, in the federation."""

    name: str
    within: Annotated[tuple[str, ...], Meta(description="the organisations that it is part of, the outermost first")]
    organisation: Annotated[bool, Meta(description="it shares its part among its members")] = False
    weight: Annotated[int, Meta(description="against its siblings in the tree")]
    share: Annotated[float, Meta(description="part of the federation below which no running task is taken away")]


class Weight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new weight of a user or an organisation."""

    weight: Annotated[int, Meta(description="against its siblings in the tree, from 1")]


class WeightChange(msgspec.Struct, frozen=True):
    """A change of a weight."""

    name: str
    weight: int
    was: int
    by: Annotated[str, Meta(description="who did it; empty where there are no tokens")]
    at_us: UnixMicroseconds


class SharePart(msgspec.Struct, frozen=True):
    """The part of the federation that a user is due, and had before and after a preemption, as far as known then."""

    due: float
    before: float
    after: float


class PreemptionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was ended so that another task could have its place."""

    number: Annotated[int, Meta(description="grows from preemption to preemption")]
    at_us: UnixMicroseconds
    by: Annotated[str, Meta(description="the component that has ended it")]
    reason: Annotated[str, Meta(description="share: who gained had less than its share; priority; cost")]
    job: Annotated[int, Meta(description="that lost; -1: it may not be seen")]
    index: int
    attempt: Annotated[int, Meta(description="that was ended; the task restarts with the next")]
    user: str
    for_job: Annotated[int, Meta(description="that gained; -1: it may not be seen")]
    for_index: int
    for_user: str
    loss: Annotated[SharePart | None, Meta(description="of the user who lost; null: not known")] = None
    gain: Annotated[SharePart | None, Meta(description="of the user who gained; null: not known")] = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission."""

    id: Annotated[int, Meta(description="of the job")]
    tasks: int
    known: Annotated[bool, Meta(description="a job with this key was there already; nothing was submitted")] = False
    warnings: tuple[str, ...] = ()


class FunnelStep(msgspec.Struct, frozen=True):
    """The machines that are left after one more demand."""

    demand: str
    machines: int


class RejectionCount(msgspec.Struct, frozen=True):
    """Units that were passed over for one reason."""

    scope: str
    reason: str
    count: int


class DecisionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One decision about a task."""

    at_us: Annotated[int, Meta(description="microseconds since 1970-01-01 UTC")]
    by: str
    chosen: str
    node: str = ""
    asked: Annotated[str, Meta(description="who had to confirm it, or has refused it")] = ""
    view_age_us: Annotated[int, Meta(description="since the scheduler's last news of that part of the cluster")] = 0
    passed: tuple[RejectionCount, ...] = ()
    omitted: Annotated[int, Meta(description="decisions before this one that are not kept")] = 0


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons why a task is where it is, or nowhere yet."""

    job: int
    index: int
    state: str
    reason: str = ""
    waiting: Annotated[int, Meta(description="tasks of the job that have not been started")] = 0
    funnel: tuple[FunnelStep, ...] = ()
    decisions: tuple[DecisionStep, ...] = ()
    explained: Annotated[bool, Meta(description="whether schedulers report their decisions here")] = False
    absent: Annotated[
        tuple[str, ...], Meta(description="a sentence about each host that does not answer or lacks something")
    ] = ()


class PlannedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal tasks of a job that has not been submitted."""

    first: Annotated[int, Meta(description="place of the first in the job")]
    count: int
    obstacle: Annotated[str, Meta(description="why no machine can ever run it; empty where one can")] = ""
    funnel: tuple[FunnelStep, ...] = ()
    at_once: Annotated[
        int | None, Meta(description="how many there is room for now, if nobody else came; null: not known of amounts")
    ] = None
    nodes: Annotated[tuple[str, ...], Meta(description="some that could have one now")] = ()


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The prospects of a job if it were submitted now; nothing is submitted."""

    tasks: int
    waiting: Annotated[int, Meta(description="tasks of all users that wait already, and as a rule come first")]
    groups: tuple[PlannedGroup, ...]
    absent: Annotated[
        tuple[str, ...], Meta(description="a sentence about each host that does not answer or lacks something")
    ] = ()
    lost: Annotated[int, Meta(description="nodes that do not answer, and are not counted")] = 0


class PairStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler's view of a part of the cluster, by what it has decided on it."""

    by: str
    asked: Annotated[str, Meta(description="who is in charge of that part")]
    decisions: int
    refused: Annotated[int, Meta(description="the view was wrong: the component that was asked has refused")]
    view_age_us: Annotated[int, Meta(description="the mean of all decisions")]
    recent: Annotated[int, Meta(description="decisions of the last five minutes")] = 0
    recent_refused: Annotated[int, Meta(description="of these")] = 0
    recent_view_age_us: Annotated[int | None, Meta(description="the mean of these; null: there were none")] = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Start and end of a job if it were submitted now, and its preemptions; no other job being submitted.

    The interval holds what came over four of five times where durations are known well; `volery plan --record` shows
    how often it did.
    """

    made_us: UnixMicroseconds
    tasks: int
    runs: Annotated[int, Meta(description="of the lab, over durations drawn again; 0: there was no time for one")]
    moments: MomentQuantiles | None = None
    known: DurationBases = DurationBases()
    preempts: tuple[PreemptedJob, ...] = ()
    problem: Annotated[str, Meta(description="why there is no forecast; empty where there is one")] = ""


class ActualMoments(msgspec.Struct, frozen=True):
    """The moments of a job that were forecast, as they came, microseconds after its submission; null: never."""

    first_start: int | None
    first_end: int | None
    last_start: int | None
    last_end: int | None


class ForecastOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast and its outcome."""

    job: int
    made_us: UnixMicroseconds
    delay_us: Annotated[int, Meta(description="microseconds from the forecast to the submission of the job")]
    moments: MomentQuantiles
    came: ActualMoments


class MomentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy of forecasts of one moment."""

    moment: str
    settled: Annotated[int, Meta(description="forecasts whose moment has come")]
    covered: Annotated[int, Meta(description="of these, that came within the interval")]
    off_us: Annotated[int | None, Meta(description="the median of how far the foretold median was off; null: of none")]


class ForecastRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy of forecasts."""

    expected: Annotated[float, Meta(description="part of all moments that intervals are meant to cover")] = 0.8
    open: Annotated[int, Meta(description="forecasts whose job has not ended, or may still be submitted")]
    damaged: Annotated[int, Meta(description="forecasts whose row is damaged; they count nowhere else")] = 0
    moments: tuple[MomentRecord, ...]
    last: tuple[ForecastOutcome, ...]


class ErrorDetail(msgspec.Struct, frozen=True):
    """A problem and its place."""

    place: str
    problem: str


class ErrorResponse(msgspec.Struct, frozen=True):
    """The answer to a request that was refused."""

    error: ErrorDetail
