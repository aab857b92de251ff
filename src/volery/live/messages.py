"""Messages between hosts besides those of an architecture, and the names that all rooms of live share.

Reports travel from a node's host to the submitter; they never pass through a scheduler. Nothing here is journalled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from volery.core.events import Preemption
from volery.core.model import Address, JobId, Message, TaskId, Time
from volery.core.reasons import Decision

HostName = str
Send = Callable[[Address, Message], None]
"""Sends a message of the submitter to a component; it arrives in a later turn of its host."""

NUMBER_BITS: Final = 32
"""Bits of the number, as people see it, in a job's or a task's identity; the upper bits are the origin.

Each start of the API has an origin of its own. So an identity means one job for ever, whatever becomes of the API's
folder: one that was restored or emptied gives numbers again, and no identity.
"""


def number_of(identity: JobId | TaskId) -> int:
    """The number that people see of a job or a task."""
    return identity & ((1 << NUMBER_BITS) - 1)


def identity_of(number: JobId, first_task: TaskId) -> JobId:
    """The identity of a job: its number, and the origin of the identity of its first task."""
    return first_task >> NUMBER_BITS << NUMBER_BITS | number


AGENT: Final = "agent"
"""The role of a host's reporter; see `volery.live.node.runtime`."""

AttemptState = Literal["running", "finished", "failed", "killed", "unstarted"]


class AttemptUsage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Usage of an attempt, as far as the kernel reports it.

    Args:
        cpu_us: processor time of all its processes, microseconds; without a control group of those alone that were
            waited for.
        memory_peak_bytes: most memory at once; without a control group, of its largest process.
        out_of_memory: true if it was ended because it wanted more memory than it may have.
        held: the means that held it to its amounts, in words; empty where it asked for none.
    """

    cpu_us: Time | None = None
    memory_peak_bytes: int | None = None
    out_of_memory: bool = False
    held: str = ""


class TaskReport(Message, frozen=True):
    """Executor > submitter, about an attempt: once when it starts, once when it has ended.

    Args:
        attempt: the scheduler's number, which tells attempts apart.
        node: the address of the node that it runs on.
        at_unix_us: time at which it came into this state, by the wall clock of its host.
        exit_code: exit code of a process that has ended; -N: signal N ended it.
        reason: the failure in words; empty where there was none.
        folder: the folder on the node's host that holds `stdout` and `stderr`; empty when there is none.
        result: result of a callable, encoded; empty for processes.
        usage: usage of the attempt, once it has ended.
        counted: the number of the attempt for people, see `attempt_number`; None: as `attempt`.
    """

    task: TaskId
    job: JobId
    attempt: int
    node: Address
    state: AttemptState
    at_unix_us: Time
    exit_code: int | None = None
    reason: str = ""
    folder: str = ""
    result: bytes = b""
    usage: AttemptUsage | None = None
    counted: int | None = None

    @property
    def number(self) -> int:
        """The number of the attempt for people: 0 is the task's first."""
        return self.attempt if self.counted is None else self.counted


class ReportsStored(Message, frozen=True):
    """Submitter > agent: the ends of these attempts (task, attempt) are stored; nobody else need keep them."""

    attempts: tuple[tuple[TaskId, int], ...]


class ConfinementReport(Message, frozen=True):
    """Agent > submitter, when it begins and when its shortage changes: the state of these nodes, in words.

    Args:
        words: confinement of tasks there.
        shortage: shortage of the machine, for which tasks cannot start; empty: none.
    """

    nodes: tuple[Address, ...]
    words: str
    shortage: str = ""


OutputPlace = Literal["here", "not here", "busy"]


class OutputRequest(Message, frozen=True):
    """Submitter > agent: send a piece of an output.

    Args:
        folder: folder of the attempt, as its node has reported it.
        stream: stdout or stderr.
        offset: offset of the piece.
        limit: most bytes of the piece; 0: only the size of the output.
    """

    number: int
    folder: str
    stream: str
    offset: int
    limit: int


class OutputReply(Message, frozen=True):
    """Agent > submitter: a piece of an output.

    Args:
        found: the answer whether the file is on this host.
        size: size of the output, bytes.
        kept: offset from which it is kept.
        piece: content of the piece, as far as the file has it.
    """

    number: int
    found: OutputPlace
    size: int = 0
    kept: int = 0
    piece: bytes = b""


class DecisionReport(Message, frozen=True):
    """Host > submitter: the decision of a scheduler about a task.

    Args:
        at_unix_us: time of the decision, by the wall clock of its host.
    """

    by: Address
    at_unix_us: Time
    decision: Decision

    @property
    def job(self) -> JobId:
        return self.decision.job


class PreemptionReport(Message, frozen=True):
    """Host > submitter: an attempt was ended in favour of another task.

    Args:
        by: scheduler that has ended it.
        at_unix_us: time of the end, by the wall clock of its host.
        fact: the attempt, the task in favour of which it was ended, and the reason.
    """

    by: Address
    at_unix_us: Time
    fact: Preemption


class PeerReport(Message, frozen=True):
    """Host > submitter: a component here has lost another, or it is back.

    Args:
        by: component that watches the other.
        peer: component that is lost, or back.
        lost: true: lost; false: back.
    """

    by: Address
    peer: Address
    lost: bool


class HostReport(Message, frozen=True):
    """Host > the API's host: this host runs.

    Args:
        started_us: start of its process, microseconds since 1970.
        waits_for: the hosts without which it has not opened yet; empty once it has.
        shortage: shortage of its machine, for which it handles nothing; empty: none.
    """

    version: str
    hostname: str
    pid: int
    started_us: Time
    waits_for: tuple[HostName, ...] = ()
    shortage: str = ""


class HostHeartbeat(Message, frozen=True):
    """Host > host: this host runs. `echo` is the number of the last beat that was received."""

    number: int
    echo: int
    state: int


HOST_MESSAGES: Final = (
    TaskReport,
    ReportsStored,
    ConfinementReport,
    HostHeartbeat,
    DecisionReport,
    PeerReport,
    PreemptionReport,
    OutputRequest,
    OutputReply,
    HostReport,
)
"""Messages that the codec carries beside those of the architecture."""
