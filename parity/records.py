"""Records of runs of the real Slurm: what was submitted and what ran when and where, without names of a machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from parity.scenarios import Submission
from volery.core.errors import InputError

FOLDER = Path(__file__).parent / "records"


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One run of a job, in milliseconds after the first submission.

    Args:
        start_ms: Allocation of its nodes.
        end_ms: End, from which what it took is free.
        nodes: Numbers of its nodes.
        is_whole: False if it was ended for another job.
        answers_ms: Times from its end to the answers of its nodes, which may start others from then on.
    """

    start_ms: float
    end_ms: float
    nodes: tuple[int, ...]
    is_whole: bool
    answers_ms: tuple[float, ...] = ()


class RanJob(msgspec.Struct, frozen=True, array_like=True):
    """A job of Slurm, or one task of an array, as it ran. Times count from the first submission.

    Args:
        submission: Place of its submission in the workload.
        index: Index in the array; 0 where it is no array.
        submit_ms: Time of its submission.
        eligible_ms: Time from which it might run, as Slurm notes it: whole seconds.
        attempts: Its runs; more than one where it was preempted and requeued.
    """

    submission: int
    index: int
    submit_ms: float
    eligible_ms: int
    attempts: tuple[Attempt, ...]

    @property
    def start_ms(self) -> float:
        """The start of the last attempt: the one that Slurm's tables keep."""
        return self.attempts[-1].start_ms

    @property
    def killed_attempts(self) -> list[Attempt]:
        """Its runs that were ended for other jobs."""
        return [attempt for attempt in self.attempts if not attempt.is_whole]


class Record(msgspec.Struct, frozen=True):
    """A run of one scenario with one seed.

    Args:
        scenario: Key of the scenario.
        seed: Seed of its workload.
        slurm: Version of Slurm.
        conf: Lines of slurm.conf that concern scheduling.
        begun_ms: Start of slurmctld, or of its computation of priorities: before the first submission and so below 0.
        hour_ms: Time of the first submission within its hour.
        main_ms: Begins of the passes of the main loop over the full queue.
        short_ms: Begins of its passes to the default depth, as after the answer of a node that ended a job.
        backfill_ms: Begins of the passes of the backfill loop.
        computations_ms: Times at which priorities were computed anew.
        cuts: Begins of the backfill passes that did not come to the end of the queue, with the count of jobs tested:
            bf_max_time is 1 s, counted in whole seconds, so that a pass over the turn of a second is cut.
        loops: Statistics of the loops of slurmctld (sdiag): counts, and times in microseconds.
        submissions: The workload.
        jobs: Jobs in the order of their submission and index.
    """

    scenario: str
    seed: int
    slurm: str
    conf: tuple[str, ...]
    begun_ms: float
    hour_ms: int
    main_ms: tuple[float, ...]
    short_ms: tuple[float, ...]
    backfill_ms: tuple[float, ...]
    computations_ms: tuple[float, ...]
    cuts: tuple[tuple[float, int], ...]
    loops: dict[str, int]
    submissions: tuple[Submission, ...]
    jobs: tuple[RanJob, ...]

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the record, one line for each job and submission."""
        lines = [b"{"]
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("submissions", "jobs"):
                rows = b",\n".join(map(msgspec.json.encode, value))
                lines.append(b'"%s": [\n%s\n]%s' % (name.encode(), rows, b"" if name == "jobs" else b","))
            else:
                lines.append(b'"%s": %s,' % (name.encode(), msgspec.json.encode(value)))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.scenario}-{self.seed}.json"
        path.write_bytes(b"\n".join([*lines, b"}\n"]))
        return path


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        InputError: if it is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(str(path), f"no record of a run ({error}): `make parity` makes it anew") from error


def recorded(scenario: str, folder: Path = FOLDER) -> list[Record]:
    """The records of a scenario in the order of their seeds."""
    return sorted(map(read_record, folder.glob(f"{scenario}-*.json")), key=lambda record: record.seed)
