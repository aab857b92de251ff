"""Tag constraints between tasks: affinity, anti-affinity and cardinality (Medea, EuroSys 2018, section 4).

A node set is a machine, or a rack. A constraint {subject, target, least, most, group} is met where from `least` to
`most` other tasks that run on the node set of a subject have all tags of the target; a task never counts for itself.
Our reading, where the paper leaves it open:

- `most` holds as long as the subject runs: a target may not join a subject that has its number of them already.
- `least` holds when the subject starts: targets that end later leave it where it is.
- A subject that is itself a target may start where all targets are, also if these are too few, or where none runs at
  all: so a group gathers one task after another. Medea's integer program places a whole application at once.

Constraints are hard; Medea's soft ones have weights.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

import msgspec

from volery.core.capabilities import TagPlacement
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.locality import racks_of
from volery.core.model import UNLIMITED, Cluster, NodeGroup, TagConstraint, Tags
from volery.core.trace import Trace

Held = Mapping[Tags, int]
"""The number of tasks with the same tags that run on a node set."""
NODE_GROUPS: Final[tuple[NodeGroup, ...]] = ("node", "rack")


def has(tags: Tags, target: tuple[str, ...]) -> bool:
    """True if a task has all tags of a target."""
    names = tags.names
    for name in target:  # all() takes three times as long, and schedulers spend their time here
        if name not in names:
            break
    else:
        return True
    return False


def counted(counts: Held, target: tuple[str, ...]) -> int:
    """The number of tasks with all tags of a target (gamma of section 4.1)."""
    return sum([count for tags, count in counts.items() if has(tags, target)])


def exceeded(tags: Tags, counts: Held, group: NodeGroup) -> TagConstraint | None:
    """A constraint of which a node set would hold more than `most` with one more task; None: there is none.

    Args:
        tags: Tags of the task, whose own constraints count like those of the tasks that run there.
        counts: Counts of tasks that run on the node set, by their tags.
        group: Group of the node set.
    """
    for constraint in tags.constraints:
        if (
            constraint.group == group
            and constraint.most != UNLIMITED
            and counted(counts, constraint.target) > constraint.most
        ):
            return constraint

    for neighbour_tags in counts:
        for constraint in neighbour_tags.constraints:
            if constraint.group == group and constraint.most != UNLIMITED and has(tags, constraint.target):
                # The neighbour's own tags do not count for it: a task never counts for itself.
                target_count = counted(counts, constraint.target) - has(neighbour_tags, constraint.target)
                if target_count + 1 > constraint.most:
                    return constraint
    return None


def lacking(tags: Tags, counts: Held, cluster_counts: Held, group: NodeGroup) -> TagConstraint | None:
    """A constraint of a task of whose target a node set holds less than `least`; None: there is none.

    Args:
        tags: Tags of the task.
        counts: Counts of tasks that run on the node set, by their tags.
        cluster_counts: Counts of tasks that run on the cluster, by their tags.
        group: Group of the node set.
    """
    for constraint in tags.constraints:
        if constraint.group == group and constraint.least:
            target_count = counted(counts, constraint.target)
            # The first tasks of a group that gathers find none of it anywhere, or all of it here.
            is_gathering = has(tags, constraint.target) and target_count == counted(cluster_counts, constraint.target)
            if target_count < constraint.least and not is_gathering:
                return constraint
    return None


def worded(constraint: TagConstraint) -> str:
    """A constraint as it is written in Medea's notation."""
    most_text = "inf" if constraint.most == UNLIMITED else str(constraint.most)
    subject, target = " & ".join(constraint.subject), " & ".join(constraint.target)
    return f"{{{subject}, {{{target}, {constraint.least}, {most_text}}}, {constraint.group}}}"


def waits_for_others(constraint: TagConstraint, tags: Tags) -> bool:
    """True if a task with these tags can only start where other tasks run."""
    return constraint.least > 0 and not has(tags, constraint.target)


def node_sets(cluster: Cluster) -> dict[NodeGroup, tuple[int, ...]]:
    """The number of each machine's node set, by group."""
    return {"node": tuple(range(len(cluster.constraints))), "rack": racks_of(cluster)}


def with_tags(trace: Trace, names: Sequence[tuple[str, ...]], constraints: Iterable[TagConstraint]) -> Trace:
    """The trace with tags of its jobs' tasks.

    Args:
        trace: Workload; tags that it has are replaced.
        names: Tags of each job.
        constraints: Constraints, each for the tasks that have all tags of its subject.
    """
    by_tag: dict[str, list[TagConstraint]] = {}
    for constraint in constraints:
        by_tag.setdefault(constraint.subject[0] if constraint.subject else "", []).append(constraint)

    place_of: dict[tuple[str, ...], int] = {}
    tag_set = array("H", [place_of.setdefault(names_of_job, len(place_of)) for names_of_job in names])

    sets = []
    for tag_names in place_of:
        matching_constraints = [
            candidate
            for name in (*tag_names, "")
            for candidate in by_tag.get(name, ())
            if set(candidate.subject) <= set(tag_names)
        ]
        sets.append(Tags(tag_names, tuple(matching_constraints)))
    return msgspec.structs.replace(trace, tag_sets=tuple(sets), tag_set=tag_set if any(place_of) else array("H"))


def check_heeded(trace: Trace, deployment: Deployment, place: str) -> None:
    """Refuse tasks with tags for a design that does not heed them.

    Raises:
        InputError: At a place that names the run's design, or its workload.
    """
    if not trace.tag_set:
        return
    if deployment.capability(TagPlacement) is None:
        problem = (
            "tasks of the workload have tag constraints, which this design does not heed; take one that does: "
            "pipeline:tags=true or omega:tags=true"
        )
        raise InputError(place, problem)


def check_tags(trace: Trace) -> None:
    """Refuse tag constraints that say nothing, contradict themselves, or that no order of starts can meet.

    Raises:
        InputError: Names the constraint, and the job of which no task could ever start.
    """
    if not trace.tag_set:
        return

    if len(trace.tag_set) != trace.job_count:
        raise InputError(trace.name, f"{len(trace.tag_set)} sets of tags for {trace.job_count} jobs; give one each")

    for constraint in dict.fromkeys([constraint for tags in trace.tag_sets for constraint in tags.constraints]):
        if not constraint.subject or not constraint.target:
            raise InputError(trace.name, f"tag constraint {worded(constraint)} has no subject or no target; name a tag")
        if (
            constraint.least < 0
            or constraint.most < UNLIMITED
            or (constraint.most != UNLIMITED and constraint.least > constraint.most)
        ):
            problem = f"tag constraint {worded(constraint)} allows no number; give 0 <= least <= most"
            raise InputError(trace.name, problem)

    _check_startable(trace)


def _check_startable(trace: Trace) -> None:
    """Refuse jobs that wait for targets of which there are too few, or that wait for each other."""
    sizes: dict[Tags, int] = {}
    job_with: dict[Tags, int] = {}
    for job in range(trace.job_count):
        tags = trace.tags_of(job)
        if tags is not None:
            sizes[tags] = sizes.get(tags, 0) + trace.first[job + 1] - trace.first[job]
            job_with.setdefault(tags, job)

    targets = _targets_of(sizes)
    # Even with all targets at once there would be too few.
    for tags in sizes:
        for constraint in tags.constraints:
            count = sum([sizes[target_tags] for target_tags in targets.get(constraint.target, ())])
            if waits_for_others(constraint, tags) and sizes[tags] and count < constraint.least:
                problem = (
                    f"tasks of job {job_with[tags]} can never start: tag constraint {worded(constraint)} needs "
                    f"{constraint.least} other tasks, and {count} have the tags of its target. Give some job these tags"
                )
                raise InputError(trace.name, problem)

    circle = _circle(sizes, targets)
    if circle is not None:
        problem = (
            f"job {job_with[circle[0]]} and job {job_with[circle[-1]]} wait for tasks of each other, or of others that "
            f"do: tag constraints of the tags {', '.join(circle[0].names)} make a circle. Remove one of them"
        )
        raise InputError(trace.name, problem)


def _targets_of(sizes: Iterable[Tags]) -> dict[tuple[str, ...], list[Tags]]:
    """The sets of tags that have the target of a constraint, by target."""
    by_name: dict[str, list[Tags]] = {}
    for tags in sizes:
        for name in dict.fromkeys(tags.names):
            by_name.setdefault(name, []).append(tags)

    targets = dict.fromkeys(
        [constraint.target for tags in sizes for constraint in tags.constraints if constraint.least]
    )
    rarest = {target: min([by_name.get(name, []) for name in target], key=len) for target in targets}
    return {target: [tags for tags in rarest[target] if has(tags, target)] for target in targets}


def _circle(sizes: Iterable[Tags], targets: Mapping[tuple[str, ...], list[Tags]]) -> list[Tags] | None:
    """Sets of tags of which each waits for tasks with those before it, and the first for the last; None: no circle."""
    waits = {
        tags: dict.fromkeys(
            [
                target_tags
                for constraint in tags.constraints
                if waits_for_others(constraint, tags)
                for target_tags in targets[constraint.target]
            ]
        )
        for tags in sizes
    }

    order = TopologicalSorter(waits)
    try:
        order.prepare()
    except CycleError as error:
        return list(error.args[1][:-1])
    return None
