"""Closed forms that check the simulation.

Queues: M/M/1, M/M/c (Erlang C). Pigeon's model of a group (Wang et al., SoCC 2019, section 3, equations 1 to 6), one
class of jobs, no reserved workers, Poisson arrivals, no communication. Power of d choices in the limit of many servers
(Mitzenmacher, IEEE TPDS 2001). Delay scheduling (Zaharia et al., EuroSys 2010, section 3, as restated by others: the
paper's text was not at hand). Times are in whatever unit the arguments share.
"""

from __future__ import annotations

import math


def _check_load(load: float) -> None:
    if not 0 <= load < 1:
        raise ValueError(f"load {load} is not in [0, 1): the queue has no steady state")


def mm1_wait(arrival_rate: float, service_mean: float) -> float:
    """Mean time in the queue of an M/M/1 server.

    Raises:
        ValueError: when the load is 1 or more, or negative.
    """
    load = arrival_rate * service_mean
    _check_load(load)
    return load * service_mean / (1 - load)


def mm1_response(arrival_rate: float, service_mean: float) -> float:
    """Mean time in an M/M/1 system: wait and service."""
    return mm1_wait(arrival_rate, service_mean) + service_mean


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits in an M/M/c queue, summed in logarithms: thousands of servers are fine.

    Args:
        servers: c, at least 1.
        load: offered work per server, in [0, 1).

    Raises:
        ValueError: when an argument is out of range.
    """
    if servers < 1:
        raise ValueError(f"{servers} servers; at least one is needed")
    _check_load(load)
    if load == 0:
        return 0.0
    log_offered = math.log(servers * load)
    log_all_busy = servers * log_offered - math.lgamma(servers + 1) - math.log1p(-load)
    log_terms = [k * log_offered - math.lgamma(k + 1) for k in range(servers)]
    # Scaled by the largest term: at low load the sum alone is e to the thousands.
    largest = max(*log_terms, log_all_busy)
    all_busy = math.exp(log_all_busy - largest)
    return all_busy / (all_busy + math.fsum(math.exp(term - largest) for term in log_terms))


def mmc_wait(servers: int, arrival_rate: float, service_mean: float) -> float:
    """Mean time in the queue of an M/M/c system.

    Raises:
        ValueError: when the load per server is 1 or more, or an argument is out of range.
    """
    load = arrival_rate * service_mean / servers
    return erlang_c(servers, load) * service_mean / (servers * (1 - load))


def mmc_wait_exceeds(servers: int, arrival_rate: float, service_mean: float, wait: float) -> float:
    """Probability that an arrival at an M/M/c system waits longer than `wait`."""
    load = arrival_rate * service_mean / servers
    return erlang_c(servers, load) * math.exp(-servers * (1 - load) * wait / service_mean)


def pigeon_task_zero_queue(group_workers: int, load: float) -> float:
    """P0, the probability that a task finds an idle worker in its group (equation 1)."""
    return 1 - erlang_c(group_workers, load)


def pigeon_task_wait(group_workers: int, load: float, task_mean: float, held: float = 0.0) -> float:
    """Mean queueing time of a task in its group (equation 2).

    Args:
        group_workers: workers of the group.
        load: share of the time that a worker runs tasks.
        task_mean: mean duration of a task.
        held: how long the master counts a worker as busy beside its task; the paper's equations have none, its
            simulation has the way of the task to the worker and of the idle notice back.
    """
    served = task_mean + held
    return mmc_wait(group_workers, group_workers * load / task_mean, served)


def pigeon_job_wait(
    group_workers: int, load: float, task_mean: float, held: float = 0.0, messages: float = 0.0
) -> float:
    """Mean waiting time of a job: that of its slowest task, about T_q, and its messages (section 3, after equation 4).

    Args:
        group_workers, load, task_mean, held: as in `pigeon_task_wait`.
        messages: what communication adds to a job that never waits.
    """
    return pigeon_task_wait(group_workers, load, task_mean, held) + messages


def pigeon_job_zero_queue(group_workers: int, load: float, fanout: int) -> float:
    """Probability that no task of a job waits, tasks of equal duration, on distinct groups (equation 3)."""
    return pigeon_task_zero_queue(group_workers, load) ** fanout


def sparrow_job_zero_queue(load: float, fanout: int, probe_ratio: int = 2) -> float:
    """Probability that at least `fanout` of a job's probes meet an idle worker (equation 4, there two probes a task).

    Raises:
        ValueError: when the load is not in [0, 1].
    """
    if not 0 <= load <= 1:
        raise ValueError(f"load {load} is not in [0, 1]")
    if load in (0, 1):
        return 1.0 - load
    probes = probe_ratio * fanout
    log_ways = [math.lgamma(probes + 1) - math.lgamma(i + 1) - math.lgamma(probes - i + 1) for i in range(probes + 1)]
    log_idle, log_busy = math.log1p(-load), math.log(load)
    return math.fsum(
        math.exp(log_ways[idle] + idle * log_idle + (probes - idle) * log_busy) for idle in range(fanout, probes + 1)
    )


def longer_task_hides_wait(wait: float, task_mean: float) -> float:
    """Probability that the longer of two exponential tasks exceeds the shorter by more than `wait` (equation 5)."""
    return math.exp(-wait / task_mean)


def pigeon_job_zero_queue_exponential(
    group_workers: int, load: float, task_mean: float = 1.0, held: float = 0.0
) -> float:
    """Probability that queueing does not delay a job of many tasks with exponential durations (equation 6).

    The arguments are those of `pigeon_task_wait`.
    """
    wait = pigeon_task_wait(group_workers, load, task_mean, held)
    seen = load * (task_mean + held) / task_mean
    return pigeon_task_zero_queue(group_workers, seen) * longer_task_hides_wait(wait, task_mean)


def power_of_choices_tail(load: float, choices: int, length: int) -> float:
    """Fraction of servers with at least `length` tasks when each task joins the shortest of `choices` random queues.

    The fixed point of the mean-field limit: load ** ((d ** length - 1) / (d - 1)).

    Raises:
        ValueError: when an argument is out of range.
    """
    _check_load(load)
    if choices < 1 or length < 0:
        raise ValueError(f"{choices} choices and length {length}; at least 1 and 0 are needed")
    exponent = length if choices == 1 else (choices**length - 1) // (choices - 1)
    # An exponent of thousands of bits is no float, and any load below 1 has vanished long before.
    return math.pow(load, min(exponent, 1 << 53))


def power_of_choices_response(load: float, choices: int, service_mean: float = 1.0) -> float:
    """Mean time in the system under the power of d choices with exponential service, many servers."""
    _check_load(load)
    if load == 0:
        return service_mean
    if choices == 1:
        return service_mean / (1 - load)
    queued, length = 0.0, 1
    while (tail := power_of_choices_tail(load, choices, length)) > 0:
        queued += tail
        length += 1
        if tail < 1e-18 * queued:
            break
    return service_mean * queued / load


def delay_local_launch(holders: float, skips: int) -> float:
    """Probability that a job launches where its input lies before it has been passed over so often.

    Args:
        holders: share of the machines that hold input of the job.
        skips: opportunities that it lets pass.

    Raises:
        ValueError: when an argument is out of range.
    """
    if not 0 <= holders <= 1 or skips < 0:
        raise ValueError(f"share {holders} of the machines and {skips} skips; give 0 to 1, and at least 0")
    return 1 - (1 - holders) ** skips


def delay_holders(tasks: float, replicas: int, nodes: int) -> float:
    """Share of the machines that hold input of so many tasks, each with some replicas: 1 - (1 - K/M)^R.

    Raises:
        ValueError: no machine.
    """
    if nodes < 1:
        raise ValueError(f"{nodes} machines; at least one is needed")
    return 1 - max(0.0, 1 - tasks / nodes) ** replicas


def delay_locality(tasks: int, skips: int, replicas: int, nodes: int) -> float:
    """Least expected share of a job's tasks that run where their input lies, if it waits anew for each of them.

    1 - 1/N * sum over K = 1..N of e^(-R D K / M), K tasks being left. The algorithm does not wait anew once
    it has launched elsewhere, until it launches where input lies: it stays a few per cent below.

    Raises:
        ValueError: no task or no machine.
    """
    if tasks < 1 or nodes < 1:
        raise ValueError(f"{tasks} tasks on {nodes} machines; at least one of each is needed")
    return 1 - math.fsum(math.exp(-replicas * skips * left / nodes) for left in range(1, tasks + 1)) / tasks


def delay_skips(locality: float, tasks: int, replicas: int, nodes: int) -> float:
    """Opportunities that a job has to let pass for this locality: the sum of `delay_locality` taken to infinity.

    D >= -M/R ln((1 - l) N / (1 + (1 - l) N)).

    Raises:
        ValueError: a locality that is not within [0, 1).
    """
    if not 0 <= locality < 1:
        raise ValueError(f"locality {locality} is not in [0, 1)")
    missed = (1 - locality) * tasks
    return -nodes / replicas * math.log(missed / (1 + missed))


def delay_wait(skips: float, task_mean: float, slots: int) -> float:
    """Longest expected wait for locality per launch: one of the slots comes free every task_mean / slots."""
    return skips * task_mean / slots


def sticky_locality(jobs: int, replicas: int, slots_per_node: int) -> float:
    """Locality of equal jobs under fair sharing without delay: the job that gave a slot back gets it again.

    1 - (1 - 1/J)^(R L): a task's input lies on a machine where its job has one of the slots.

    Raises:
        ValueError: no job.
    """
    if jobs < 1:
        raise ValueError(f"{jobs} jobs; at least one is needed")
    return 1 - (1 - 1 / jobs) ** (replicas * slots_per_node)
