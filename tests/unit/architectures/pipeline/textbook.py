"""EASY and conservative backfilling of rigid jobs as in the textbook, apart from Volery: processors are counts.

Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2. At each instant at which jobs arrive or end, the ends are taken
in, then the arrivals, then jobs are started. A job that has run longer than its estimate may end at any moment.
"""

from __future__ import annotations

from typing import NamedTuple


class RigidJob(NamedTuple):
    """A job: its times in microseconds, and the processors that it needs at once."""

    submit: int
    run: int
    estimate: int
    size: int


def replay(jobs: list[RigidJob], processors: int, policy: str) -> list[int]:
    """The start of each job under `easy` or `conservative`; jobs wait in the order of the list."""
    starts = [-1] * len(jobs)
    waiting: list[int] = []
    running: list[int] = []
    arrived = 0

    while arrived < len(jobs) or running:
        arrivals = [jobs[arrived].submit] if arrived < len(jobs) else []
        now = min(arrivals + [starts[job] + jobs[job].run for job in running])

        running = [job for job in running if starts[job] + jobs[job].run > now]
        while arrived < len(jobs) and jobs[arrived].submit == now:
            waiting.append(arrived)
            arrived += 1

        decide = easy if policy == "easy" else conservative
        for job in decide(jobs, waiting, running, starts, processors, now):
            starts[job] = now
            waiting.remove(job)
            running.append(job)
        # A job that takes no time has ended at once, and there is another decision.
        if any(jobs[job].run == 0 for job in running):
            continue
    return starts


def expected_end(jobs: list[RigidJob], starts: list[int], job: int, now: int) -> int:
    """The end of a running job by its estimate."""
    return max(starts[job] + max(1, jobs[job].estimate), now)


def easy(
    jobs: list[RigidJob], waiting: list[int], running: list[int], starts: list[int], processors: int, now: int
) -> list[int]:
    """The jobs to start now: in order, then those that do not delay the first that has to wait."""
    free = processors - sum(jobs[job].size for job in running)
    begun: list[int] = []
    queue = list(waiting)

    while queue and jobs[queue[0]].size <= free:
        free -= jobs[queue[0]].size
        begun.append(queue.pop(0))
    if not queue:
        return begun

    # Shadow time: the first job of the queue will have its processors then; `extra` of them are more than it needs.
    head = jobs[queue[0]]
    ends = [(expected_end(jobs, starts, job, now), jobs[job].size) for job in running]
    ends += [(now + max(1, jobs[job].estimate), jobs[job].size) for job in begun]
    available, shadow = free, now
    for end in sorted({end for end, _ in ends}):
        available += sum(size for at, size in ends if at == end)
        if available >= head.size:
            shadow = end
            break
    extra = available - head.size

    for job in queue[1:]:
        ends_before = now + max(1, jobs[job].estimate) <= shadow
        if jobs[job].size <= free and (ends_before or jobs[job].size <= extra):
            free -= jobs[job].size
            extra -= 0 if ends_before else jobs[job].size
            begun.append(job)
    return begun


def conservative(
    jobs: list[RigidJob], waiting: list[int], running: list[int], starts: list[int], processors: int, now: int
) -> list[int]:
    """The jobs whose reservation is now: each has the earliest that delays none before it."""
    # What is taken from when to when, by those that run and those that have a reservation.
    taken = [(now, max(expected_end(jobs, starts, job, now), now + 1), jobs[job].size) for job in running]
    begun: list[int] = []

    def free_at(time: int) -> int:
        return processors - sum(size for begin, end, size in taken if begin <= time < end)

    for job in waiting:
        size, lasts = jobs[job].size, max(1, jobs[job].estimate)
        for begin in sorted({now, *[end for _, end, _ in taken]}):
            moments = {begin, *[at for at, _, _ in taken if begin < at < begin + lasts]}
            if all(free_at(moment) >= size for moment in moments):
                break
        taken.append((begin, begin + lasts, size))
        if begin == now:
            begun.append(job)
    return begun
