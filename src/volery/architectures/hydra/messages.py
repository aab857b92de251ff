"""The messages between routers, state store, policy generator, proxies, resource managers and nodes.

Numbers count the messages of one sender to one receiver, so that repeated and stale ones are recognised. A container is
the right to run one task on a machine, given by a resource manager; its `term` names the registration of the machine.
"""

from __future__ import annotations

import msgspec

from volery.core.model import Gang, Job, JobId, Message, Task, TaskId


class Locate(Message, frozen=True):
    """Router > store: the home of this job, which is to be `candidate` if it has none yet."""

    job: JobId
    candidate: int


class Located(Message, frozen=True):
    """Store > router: the job's home sub-cluster."""

    job: JobId
    home: int


class Hosted(Message, frozen=True):
    """Router > proxy of the home sub-cluster: host this job's application master."""

    job: Job


class ContainerRequest(Message, frozen=True):
    """Proxy > resource manager: so many containers more, or fewer, for a job.

    Args:
        counts: Change of the number of containers, per mask; below zero: so many are not wanted any more.
    """

    number: int
    job: JobId
    user: str
    masks: tuple[int, ...]
    counts: tuple[int, ...]


class GangRequest(Message, frozen=True):
    """Proxy > resource manager: these containers for a job, all in one grant; none: they are not wanted any more.

    Args:
        needs: Mask of each container.
        shape: Machines over which the containers are spread.
    """

    number: int
    job: JobId
    user: str
    needs: tuple[int, ...]
    shape: Gang


class Container(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A container: on which machine, under which registration of it, and what it was asked for."""

    id: int
    machine: int
    term: int
    job: JobId
    mask: int


class Grant(Message, frozen=True):
    """Resource manager > proxy: these containers are yours; so many slots are free here besides."""

    number: int
    containers: tuple[Container, ...]
    headroom: int


class Release(Message, frozen=True):
    """Proxy > resource manager: these containers are not wanted, and nothing was started in them."""

    containers: tuple[int, ...]


class Start(Message, frozen=True):
    """Proxy > node: run this attempt in the container; a restarted resource manager learns the user from it."""

    number: int
    container: Container
    user: str
    task: Task
    attempt: int


class Kill(Message, frozen=True):
    """Proxy > node: end the attempt, or do not begin it; Completed follows."""

    task: TaskId
    attempt: int


class Completed(Message, frozen=True):
    """Node > proxy: the attempt has ended; `killed`: before it was finished."""

    job: JobId
    task: TaskId
    attempt: int
    killed: bool


class Refused(Message, frozen=True):
    """Node > proxy: the container was given under a registration that is over; nothing was started."""

    job: JobId
    task: TaskId
    attempt: int


class Vacated(Message, frozen=True):
    """Node > its resource manager, in a heartbeat: these containers have ended."""

    containers: tuple[int, ...]


class Held(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A container in which a task runs, as its node reports it."""

    container: Container
    proxy: str
    user: str


class Register(Message, frozen=True):
    """Node > its resource manager: this is all that runs here; what was given before and not begun is void."""

    number: int
    running: tuple[Held, ...]


class Welcome(Message, frozen=True):
    """Resource manager > node: registration `number` is taken note of; containers of this term are good."""

    number: int
    term: int


class Reborn(Message, frozen=True):
    """Restarted resource manager or node > all that deal with it: I have restarted (the link reports the rest)."""


class NodeDead(Message, frozen=True):
    """Resource manager > proxies: what ran on this machine has ended, and the machine will not report it."""

    machine: int


class Load(Message, frozen=True):
    """Resource manager > store, in its heartbeat there."""

    number: int
    slots: int
    free: int
    applications: int
    queues: tuple[str, ...]
    used: tuple[int, ...]
    wanted: tuple[int, ...]


class Directory(Message, frozen=True):
    """Store > routers and proxies, per sub-cluster: is it active, its weight in permille, free slots (-1: unknown)."""

    number: int
    active: tuple[bool, ...]
    weights: tuple[int, ...]
    free: tuple[int, ...]


class Entitle(Message, frozen=True):
    """Store > resource manager: the guaranteed capacities of queues here, in slots."""

    number: int
    queues: tuple[str, ...]
    slots: tuple[int, ...]


class News(Message, frozen=True):
    """Store > policy generator: something has changed since you last read."""


class Read(Message, frozen=True):
    """Policy generator > store: send me the loads."""


class SubclusterLoads(Message, frozen=True):
    """Store > policy generator: the last load of every sub-cluster, and which of them are active."""

    loads: tuple[Load, ...]
    active: tuple[bool, ...]


class Guarantee(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The guaranteed capacity of a queue in every sub-cluster, in slots."""

    queue: str
    slots: tuple[int, ...]


class PolicyUpdate(Message, frozen=True):
    """Policy generator > store: new weights of sub-clusters, in permille, and new guaranteed capacities."""

    weights: tuple[int, ...]
    guarantees: tuple[Guarantee, ...]
