"""Checks that a result depends on seed, trace and configuration alone, and on nothing that should not matter.

Digests come from this process and from others, one per hash seed. The others outlive a check, because an interpreter
that has imported the lab costs ten times what the runs cost. A design reaches them pickled, by the name of its build
function; the answer is its digests, or an error.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import statistics
import subprocess
import sys
import traceback
from typing import IO, Final

from volery.conformance.cases import MACHINES, Case, mixed_cases, trace_of
from volery.conformance.verdict import FactFilter, Interruption, check, demand, run
from volery.core.component import Architecture
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.streams import Streams
from volery.sim import Options

HASH_SEEDS = ("1", "2718")
RELABELLINGS = 12
SIGNIFICANT = 5.0
"""Welch's t of two samples of 12: below 1 in 10,000 by chance."""
MATERIAL = 0.1


@check
def check_same_seed_same_digest(architecture: Architecture) -> None:
    """The same seed gives the same digest again, and in other processes under other hash seeds.

    The other processes find the design by the name of its build function, which must therefore be importable.
    """
    digests_here = digests(architecture)
    demand(digests(architecture) == digests_here, "a second run in the same process has another digest")

    for hash_seed in HASH_SEEDS:
        digests_elsewhere = digests_under(hash_seed, architecture)
        demand(
            isinstance(digests_elsewhere, list),
            f"under PYTHONHASHSEED={hash_seed} another process failed: {digests_elsewhere}",
        )
        demand(
            digests_elsewhere == digests_here, f"under PYTHONHASHSEED={hash_seed} in another process the digests differ"
        )


@check
def check_codec_changes_nothing(architecture: Architecture) -> None:
    """With every message copied through the codec, the digest is the same."""
    for case in mixed_cases(seed=11):
        plain = run(architecture, case).digest()
        copied = run(architecture, case, options=Options(copy_messages=True)).digest()
        demand(plain == copied, f"messages that are copied on the way change the result of case {case.name!r}")


@check
def check_observing_changes_nothing(architecture: Architecture) -> None:
    """With the facts that components report dropped, the digest is the same."""
    for case in mixed_cases(seed=12):
        digest_with_facts = run(architecture, case).digest()
        digest_without_facts = run(architecture, case, interceptor=FactFilter()).digest()
        demand(digest_with_facts == digest_without_facts, f"what is observed changes the result of case {case.name!r}")


@check
def check_builds_share_nothing(architecture: Architecture) -> None:
    """Two builds that run at the same time, one inside the other, give what each gives alone."""
    for case in mixed_cases(seed=13):
        alone = [run(architecture, case, seed=seed).digest() for seed in (0, 1)]
        within: list[str] = []
        inside = functools.partial(_run_into, within, architecture, case)
        around = run(architecture, case, seed=0, interceptor=Interruption(300, inside)).digest()
        demand(bool(within), f"case {case.name!r} has too few events to be interrupted")
        demand([around, *within] == alone, f"runs of case {case.name!r} that overlap in time influence each other")


def _run_into(digests_run: list[str], architecture: Architecture, case: Case) -> None:
    digests_run.append(run(architecture, case, seed=1).digest())


@check
def check_knowledge_is_honest(architecture: Architecture) -> None:
    """Until the first task ends, no decision depends on true durations, which schedulers do not have.

    Durations differ, estimates and all else are equal, and more tasks come than fit; whatever starts before the first
    end must start at the same time on the same machine.
    """
    cluster = Cluster.uniform(MACHINES)
    estimate = 50 * SECOND
    arrivals = [k * 40_000 for k in range(30)]

    starts = []
    for shuffle in (0, 1):
        stream = Streams(shuffle).of("conformance/durations")
        jobs = []
        for _ in arrivals:
            # The three add up to three estimates whatever was drawn, so that their mean is the estimate.
            spread = [stream.randrange(20 * SECOND) for _ in range(3)]
            jobs.append([2 * estimate - sum(spread), estimate // 2 + sum(spread), estimate // 2])

        case = Case("honest", shuffle, trace_of("honest", arrivals, jobs), cluster)
        records = run(architecture, case)
        first_end = min(finish_us for finish_us in records.finish_us if finish_us != NEVER)
        starts.append((first_end, list(zip(records.start_us, records.worker, strict=True))))

    # Up to the first end of either run, both have seen the same events.
    first_end_of_both = min(first_end for first_end, _ in starts)
    for task, (a, b) in enumerate(zip(starts[0][1], starts[1][1], strict=True)):
        demand(
            a == b or min(a[0], b[0]) >= first_end_of_both,
            f"task {task} started {a} or {b}, by durations that no scheduler has",
        )


@check
def check_labels_do_not_matter(architecture: Architecture) -> None:
    """Numbering the machines in reverse keeps the distribution of results.

    The first half of the machines is strong, the other half weak, or the other way round; half of the tasks need a
    strong one. A partition into equal runs of machines is mirrored, so that only a preference for low numbers can
    tell. Compared are the mean delays of two samples of seeds by Welch's t.
    """
    half = MACHINES // 2
    strong_first = Cluster((1,) * half + (0,) * half, (1,) * MACHINES)
    weak_first = Cluster((0,) * half + (1,) * half, (1,) * MACHINES)

    samples: list[list[float]] = [[], []]
    for seed in range(RELABELLINGS):
        for sample, cluster in zip(samples, (strong_first, weak_first), strict=True):
            stream = Streams(seed).of("conformance/labels")
            arrivals = sorted(int(stream.random() * 16 * SECOND) for _ in range(1000))
            jobs = [[int(stream.expovariate(2.0) * SECOND)] for _ in arrivals]
            needs = [[stream.randrange(2)] for _ in arrivals]
            case = Case("labels", seed, trace_of("labels", arrivals, jobs, needs), cluster)

            records = run(architecture, case, seed=seed)
            delays = [answer - at - job[0] for answer, at, job in zip(records.answered_us, arrivals, jobs, strict=True)]
            sample.append(statistics.fmean(delays))

    means = [statistics.fmean(sample) for sample in samples]
    spread = (sum(statistics.variance(sample) for sample in samples) / RELABELLINGS) ** 0.5
    distance = abs(means[0] - means[1])

    demand(
        distance <= SIGNIFICANT * spread or distance <= MATERIAL * max(means),
        f"mean delays of {means[0]:.0f} and {means[1]:.0f} us under two numberings of the same machines",
    )


PROGRAM: Final = "from volery.conformance.determinism import main; main()"


def digests(architecture: Architecture) -> list[str]:
    """The digests of some runs in this process."""
    return [run(architecture, case, seed=seed).digest() for seed in (0, 1) for case in mixed_cases(seed=10)]


def digests_under(hash_seed: str, architecture: Architecture) -> list[str] | str:
    """The digests of a design under a hash seed, in another process; a text is the error there.

    Args:
        hash_seed: PYTHONHASHSEED of that interpreter.
    """
    interpreter = _interpreter(hash_seed, os.pathsep.join(filter(None, sys.path)))

    asking, answering = _pipes(interpreter)
    try:
        pickle.dump(architecture, asking)
        asking.flush()
        answer: list[str] | str = pickle.load(answering)  # noqa: S301 - written by our own child
    except (BrokenPipeError, EOFError):
        # The process is gone: the next design gets another.
        _interpreter.cache_clear()
        return f"it ended with status {interpreter.wait()}"
    return answer


@functools.cache
def _interpreter(hash_seed: str, path: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    interpreter = subprocess.Popen(  # noqa: S603 - our own interpreter runs our own program
        [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_end, interpreter)
    return interpreter


def _pipes(interpreter: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert interpreter.stdin is not None
    assert interpreter.stdout is not None
    return interpreter.stdin, interpreter.stdout


def _end(interpreter: subprocess.Popen[bytes]) -> None:
    interpreter.terminate()
    interpreter.wait()
    for pipe in _pipes(interpreter):
        pipe.close()


def main() -> None:
    """Answer for one design after another until the input ends."""
    answering, sys.stdout = sys.stdout.buffer, sys.stderr  # what a design prints is no answer

    answer: list[str] | str
    while True:
        try:
            answer = digests(pickle.load(sys.stdin.buffer))  # noqa: S301 - written by our own parent process
        except EOFError:
            return
        except Exception:
            answer = traceback.format_exc()[-500:]
        pickle.dump(answer, answering)
        answering.flush()
