"""A run of the real Slurm, recorded: its workload is submitted, and its log and tables are read into a Record."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from parity import accounting
from parity.daemons import CONF, Slurm, check_installed, free_ports
from parity.records import Attempt, RanJob, Record
from parity.scenarios import NODES, SCENARIOS, Submission
from volery.core.errors import InputError

RUN_MAX_S = 900.0
HOUR_MS = 3_600_000
STEP_MS = 0.001
SCRIPT = '#!/bin/sh\nshift "${SLURM_ARRAY_TASK_ID:-0}"\nexec sleep "$1"\n'
LINE = re.compile(r"\[(?P<at>[-\dT:.]+)\] (?P<text>.*)")
JOB = r"JobId=(?:\d+_\d+\()?(?P<job>\d+)"
SUBMITTED = re.compile(rf"_slurm_rpc_submit_batch_job: {JOB} ")
STARTED = re.compile(
    rf"(?:sched/backfill: _start_job: Started|sched: Allocate) {JOB}.*?(?:NodeList=| on )(?P<nodes>\S+)"
)
ENDED = re.compile(rf"_job_complete: {JOB}\)? done")
PREEMPTED = re.compile(rf"preempted {JOB}\)? has been ")
BEGUN = re.compile(r"slurmctld version (?P<version>\S+) started")
DECAY_BEGUN = "_read_last_decay_ran"
"""From here on priorities are computed in each period."""
ANSWERED = re.compile(rf"make_node_idle: enter {JOB}")
"""A node is rid of a job (DebugFlags=TraceJobs)."""
MAIN_BEGIN = "Running job scheduler for full queue"
SHORT_BEGIN = "Running job scheduler for default depth"
BACKFILL_BEGIN = "_attempt_backfill: beginning"
COMPUTATION = "Fair Tree fairshare algorithm"
BACKFILL_END = re.compile(r"completed testing \d+\((?P<count>\d+)\) jobs")
QUEUE_END = "reached end of job queue"
LOOPS = {"Main schedule statistics": "main", "Backfilling stats": "backfill"}
LOOP_FIGURES = ("Total cycles", "Mean cycle", "Max cycle", "Total backfilled jobs (since last stats cycle start)")


def record_run(
    name: str, seed: int, *, port: int | None = None, job_count: int | None = None, kept: Path | None = None
) -> Record:
    """Start a Slurm, run a scenario on it in real time, and stop it, whatever happens.

    Args:
        name: Key of the scenario.
        seed: Seed of its workload.
        port: First of its ports; None: any free ones.
        job_count: Count of submissions, if not all of the workload.
        kept: Folder for what Slurm itself wrote about the run; None: it is deleted.

    Raises:
        InputError: if Slurm is not installed, does not come up, or refuses a job.
    """
    scenario = SCENARIOS[name]
    workload = scenario.workload(seed)[:job_count]
    check_installed(accounting=bool(scenario.shares))
    port_count = 1 + NODES + (accounting.PORTS if scenario.shares else 0)
    first_port = free_ports(port_count, port)
    accounting_port = first_port + 1 + NODES if scenario.shares else None

    with tempfile.TemporaryDirectory(prefix="parity-") as temporary:
        slurm = Slurm(Path(temporary), scenario.conf, first_port, accounting_port)
        try:
            if accounting_port is not None:
                accounting.start(slurm, accounting_port, scenario.shares)
            slurm.start()
            run(slurm, workload)
            if accounting_port is not None:
                accounting.export(slurm)
        finally:
            slurm.stop()
            if kept is not None:
                kept.mkdir(parents=True, exist_ok=True)
                for path in slurm.folder.glob("*.*"):
                    if path.is_file():
                        shutil.copy(path, kept)
        common = tuple([line for line in CONF.splitlines() if line.startswith(("Select", "AuthInfo", "KillWait"))])
        return read_run(slurm, name, seed, common + scenario.conf, workload)


def submit(slurm: Slurm, workload: list[Submission]) -> list[int]:
    """Submit a workload in its own time; returns the number of each submission's job.

    Raises:
        InputError: with Slurm's reason, if it refuses a job.
    """
    script = slurm.folder / "job.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    numbers: list[int] = []
    begin = time.monotonic()
    for job in workload:
        time.sleep(max(0.0, begin + job.at_s - time.monotonic()))
        arguments = [
            "--parsable", "-o/dev/null", "-D/", "-Jparity", "--requeue", f"-N{job.nodes}",
            f"--ntasks-per-node={job.tasks}", f"-t{job.limit_min}", f"-p{job.partition}", f"--nice={job.nice}",
        ]  # fmt: skip
        if job.account:
            arguments.append(f"-A{job.account}")
        if job.dependency:
            arguments.append(f"-d{job.dependency}:{numbers[job.parent]}")
        if len(job.runs_s) > 1:
            arguments.append(f"-a0-{len(job.runs_s) - 1}" + (f"%{job.throttle}" if job.throttle else ""))
        numbers.append(int(slurm.output("sbatch", *arguments, str(script), *map(str, job.runs_s)).split(";")[0]))
    return numbers


def run(slurm: Slurm, workload: list[Submission]) -> list[int]:
    """Submit a workload and wait until nothing of it is left; its traces are then in the folder of the cluster.

    Raises:
        InputError: if Slurm refuses a job, or jobs are left after RUN_MAX_S.
    """
    slurm.output("sdiag", "--reset")
    numbers = submit(slurm, workload)
    deadline = time.monotonic() + RUN_MAX_S
    while slurm.output("squeue", "-h", "-o", "%i"):
        if time.monotonic() > deadline:
            raise InputError("slurmctld", f"jobs are left after {RUN_MAX_S:.0f} s: {slurm.output('squeue', '-h')}")
        time.sleep(1.0)
    for name, arguments in (("scontrol", ("show", "job", "-o")), ("sdiag", ())):
        (slurm.folder / f"{name}.txt").write_text(slurm.output(name, *arguments))
    (slurm.folder / "numbers.txt").write_text(" ".join(map(str, numbers)))
    return numbers


def read_run(slurm: Slurm, scenario: str, seed: int, conf: tuple[str, ...], workload: list[Submission]) -> Record:
    """Read what a run has left in the folder of its cluster.

    Raises:
        InputError: if a job has not started, or did not end as it should.
    """
    table = list(_shown_jobs((slurm.folder / "scontrol.txt").read_text()))
    numbers = list(map(int, (slurm.folder / "numbers.txt").read_text().split()))
    events = list(_events(slurm.log))
    version, begun_ms = next((match["version"], at) for at, text in events if (match := BEGUN.search(text)))
    begun_ms = next((at for at, text in events if DECAY_BEGUN in text), begun_ms)
    submitted = {int(match["job"]): at for at, text in events if (match := SUBMITTED.search(text))}
    attempts = _attempts(events)
    zero_ms = submitted[numbers[0]]

    place_of = {number: place for place, number in enumerate(numbers)}
    jobs = []
    for shown in sorted(table, key=lambda fields: int(fields["JobId"])):
        number, array = int(shown["JobId"]), int(shown.get("ArrayJobId", shown["JobId"]))
        if shown["JobState"] not in ("COMPLETED", "PREEMPTED") or number not in attempts:
            raise InputError(f"job {number}", f"it ended as {shown['JobState']} ({shown['Reason']}): run again")
        eligible_ms = _milliseconds(shown["EligibleTime"])
        jobs.append(
            RanJob(
                place_of[array], int(shown.get("ArrayTaskId", 0)), _after(submitted[array], zero_ms),
                eligible_ms - int(zero_ms),
                tuple([
                    msgspec.structs.replace(
                        attempt, start_ms=_after(attempt.start_ms, zero_ms), end_ms=_after(attempt.end_ms, zero_ms)
                    )
                    for attempt in attempts[number]
                ]),
            )
        )  # fmt: skip
    jobs.sort(key=lambda job: (job.submission, job.index))
    main_ms, short_ms, backfill_ms, computations_ms = (
        tuple([_after(at_ms, zero_ms) for at_ms, text in events if words in text])
        for words in (MAIN_BEGIN, SHORT_BEGIN, BACKFILL_BEGIN, COMPUTATION)
    )
    loops = _loops((slurm.folder / "sdiag.txt").read_text())
    return Record(
        scenario,
        seed,
        version,
        conf,
        _after(begun_ms, zero_ms),
        int(zero_ms) % HOUR_MS,
        main_ms,
        short_ms,
        backfill_ms,
        computations_ms,
        tuple([(_after(at_ms, zero_ms), count) for at_ms, count in _cuts(events)]),
        loops,
        tuple(workload),
        tuple(jobs),
    )


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def _events(log: Path) -> Iterator[tuple[float, str]]:
    """Time in milliseconds and text of each line of a log of slurmctld; lines of one millisecond are a step apart."""
    previous_ms = 0.0
    for line in log.read_text().splitlines():
        if match := LINE.match(line):
            previous_ms = max(float(_milliseconds(match["at"])), previous_ms + STEP_MS)
            yield previous_ms, match["text"]


def _after(at_ms: float, since_ms: float) -> float:
    return round(at_ms - since_ms, 3)


def _cuts(events: list[tuple[float, str]]) -> Iterator[tuple[float, int]]:
    """The begins of backfill passes that ended before their queue, with the counts of jobs that were tested."""
    begin_ms, is_whole = 0.0, False
    for at_ms, text in events:
        if BACKFILL_BEGIN in text:
            begin_ms, is_whole = at_ms, False
        elif QUEUE_END in text:
            is_whole = True
        elif (match := BACKFILL_END.search(text)) and not is_whole:
            yield begin_ms, int(match["count"])


def _attempts(events: list[tuple[float, str]]) -> dict[int, list[Attempt]]:
    """The attempts of each job, on the clock of the log."""
    attempts: dict[int, list[Attempt]] = {}
    running: dict[int, tuple[float, tuple[int, ...]]] = {}
    for at_ms, text in events:
        if match := STARTED.search(text):
            running[int(match["job"])] = (at_ms, node_numbers(match["nodes"]))
        elif match := ENDED.search(text) or PREEMPTED.search(text):
            number = int(match["job"])
            if number in running:
                start_ms, nodes = running.pop(number)
                attempts.setdefault(number, []).append(Attempt(start_ms, at_ms, nodes, match.re is ENDED))
        elif (match := ANSWERED.search(text)) and (ended := attempts.get(int(match["job"]))):
            answers_ms = (*ended[-1].answers_ms, _after(at_ms, ended[-1].end_ms))
            ended[-1] = msgspec.structs.replace(ended[-1], answers_ms=answers_ms)
    return attempts


def node_numbers(text: str) -> tuple[int, ...]:
    """The numbers of the nodes that Slurm writes as n3, n[0-2,5]."""
    numbers: list[int] = []
    for part in text.removeprefix("n").strip("[]").split(","):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return tuple(numbers)


def _shown_jobs(text: str) -> Iterator[dict[str, str]]:
    """The fields of each job in the output of `scontrol show job -o`."""
    for line in text.splitlines():
        yield dict(re.findall(r"(?:^| )([A-Za-z]+)=(\S*)", line))


def _loops(text: str) -> dict[str, int]:
    """Counts and times of the loops of slurmctld, from the output of sdiag."""
    loops: dict[str, int] = {}
    section = ""
    for line in text.splitlines():
        section = next((name for title, name in LOOPS.items() if line.startswith(title)), section)
        figure, _, value = line.strip().partition(":")
        if section and figure in LOOP_FIGURES:
            loops.setdefault(f"{section} {figure.split(' (')[0].lower()}", int(value))
    return loops
