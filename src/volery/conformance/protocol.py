"""Checks of the protocol between components: messages and their flow, hops, delays, costs, queues and stages."""

from __future__ import annotations

import functools
import operator
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from volery.conformance.cases import MACHINES, Case, lone_task, mixed_cases, trace_of
from volery.conformance.jobs import Cancels
from volery.conformance.outcomes import demand_all_finished, path_us
from volery.conformance.verdict import ComponentProxy, Deliveries, check, demand, run
from volery.core.component import Architecture, Attached, Component, Deployment, Sends, UnknownMessageError, role_of
from volery.core.events import DRIVER_EVENTS, SUBMITTER_MESSAGES
from volery.core.flow import SUBMISSIONS, entry_roles, orders_to, seen_through, tables
from volery.core.model import NEVER, SECOND, SUBMITTER, Address, Cluster, Message, Time
from volery.core.port import ForwardingPort, Port
from volery.core.records import Records
from volery.core.stages import Stage
from volery.core.streams import Streams
from volery.sim import Network, Options

Sending = tuple[Address, type[Message], str]
"""Sender, message, role of the receiver."""


class _SendLog(ForwardingPort):
    """A port that records the kinds of messages that it sends."""

    __slots__ = ("_sendings",)

    def __init__(self, inner: Port, sendings: dict[Sending, None]) -> None:
        super().__init__(inner)
        self._sendings = sendings

    def send(self, to: Address, message: Message) -> None:
        self._sendings[self.address, type(message), role_of(to)] = None
        self.inner.send(to, message)


class _LoggedComponent(ComponentProxy):
    """A proxy that records what a component itself sends, also where a reliable channel is around it."""

    __slots__ = ()
    interceptor: _Sendings

    def bind(self, port: Port) -> None:
        super().bind(port)
        sender = seen_through(self.inner)
        sender._port = _SendLog(sender._port, self.interceptor.sendings)


class _Sendings(Cancels):
    """Records the kinds of messages of a run in which some jobs are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.sendings: dict[Sending, None] = {}

    def over(self, deployment: Deployment) -> Deployment:
        proxies: dict[Address, Component] = {
            address: _LoggedComponent(self, component, address) for address, component in deployment.components.items()
        }
        return msgspec.structs.replace(deployment, components=proxies)


@check
def check_flow_is_declared(architecture: Architecture) -> None:
    """Every message of a run is in its sender's `sends`; what is declared is taken, and what is taken is declared."""
    deployment_by_slots = architecture.build(Cluster.uniform(MACHINES), architecture.defaults, Streams(0))
    _demand_tables_fit(deployment_by_slots, architecture.messages)
    log = _Sendings()
    case = mixed_cases(seed=24)[1]
    run(architecture, case, interceptor=log)

    deployment = architecture.build(case.cluster, architecture.defaults, Streams(0))
    for address, kind, to in log.sendings:
        sender = seen_through(deployment.components[address])
        action = f"{type(sender).__name__} sends {kind.__name__} to {to}"
        demand((kind, to) in sender.emits(), f"{action}, which is not in its `sends`")


def _demand_tables_fit(deployment: Deployment, messages: frozenset[type[Message]]) -> None:
    takes, sends_of = tables(deployment)
    entries = entry_roles(deployment)

    declared = {(kind, role) for role in entries for kind in SUBMISSIONS}.union(*_all_sends())
    declared |= orders_to(deployment).union(*sends_of.values())

    for role, sends in sends_of.items():
        for kind, to in sends:
            carried = kind in messages or kind in SUBMITTER_MESSAGES
            demand(
                carried, f"{role} sends {kind.__name__}, which is not among the design's `messages`: no wire takes it"
            )
            is_taken = to not in takes or kind in takes[to]
            demand(is_taken, f"{role} sends {kind.__name__} to {to}, which does not take it")

    for role, kinds in takes.items():
        for kind in kinds - DRIVER_EVENTS:
            if kind in messages or kind in SUBMITTER_MESSAGES:  # others come from the component's own links
                demand((kind, role) in declared, f"{role} takes {kind.__name__}, which no role declares to send there")


def _all_sends() -> Iterator[Sends]:
    """The messages of every class of components and of their parts: some are of use under other parameters alone."""
    waiting: list[type[Component | Attached]] = [Component, *Attached.__subclasses__()]
    while waiting:
        role_class = waiting.pop()
        yield role_class.sends
        waiting += role_class.__subclasses__()


PRIMES = (53, 101, 211, 307, 401, 503, 601, 701, 809, 907, 1009, 1103, 1201, 1301, 1409, 1511)
COST_US = 1_000


class _Unheard(Message, frozen=True):
    """A message that no design declares."""


def _lone() -> Case:
    return Case("lone task", 0, lone_task(), Cluster.uniform(MACHINES))


def _response_us(case: Case, records: Records) -> Time:
    return records.answered_us[0] - case.trace.arrival_us[0] - case.trace.duration_us[0]


@check
def check_lone_task_costs_its_hops(architecture: Architecture) -> None:
    """One job of one task on an idle cluster costs exactly the declared number of link delays."""
    case = _lone()
    for delay in (0, 500, 1_300):
        records = run(architecture, case, network=Network(delay_us=delay))
        cost = _response_us(case, records)
        hops = architecture.conformance.hops
        demand(cost == hops * delay, f"a lone task costs {cost} us, not {hops} x {delay} us")


@check
def check_link_delays(architecture: Architecture) -> None:
    """Every link class may have a delay of its own: each message takes that long, and all rules hold."""
    case = mixed_cases(seed=20)[1]

    roles = sorted({role_of(a) for a in architecture.build(case.cluster, architecture.defaults, Streams(0)).components})
    links = [(a, b) for a in roles for b in roles]
    for factor in (1, 40):
        overrides = {link: factor * PRIMES[k % len(PRIMES)] for k, link in enumerate(links)}

        deliveries = Deliveries()
        records = run(
            architecture,
            case,
            network=Network(overrides=overrides),
            options=Options(check=True),
            interceptor=deliveries,
        )

        demand_all_finished(case, records, architecture)

        for (source, to), delays in deliveries.delays.items():
            expected = overrides.get((role_of(source), role_of(to)), 0)
            demand(set(delays) <= {expected}, f"messages from {source} to {to} took {set(delays)}, not {expected} us")


@check
def check_allocation_adds_up(architecture: Architecture) -> None:
    """On an idle cluster a task's allocation time is communication and processing, and nothing else."""
    arrivals = [k * 10 * SECOND + k for k in range(40)]
    case = Case("far apart", 0, trace_of("far apart", arrivals, [[SECOND]] * 40), Cluster.uniform(MACHINES))
    roles = {role_of(a) for a in architecture.build(case.cluster, architecture.defaults, Streams(0)).components}

    for cost in (0, COST_US):
        records = run(architecture, case, options=Options(costs=dict.fromkeys(roles, cost)))
        for task, at in enumerate(arrivals):
            wait_us, explained_us = records.start_us[task] - at, path_us(records, task) + records.waited_us.get(task, 0)
            demand(
                wait_us == explained_us,
                f"task {task} waits {wait_us} us on an idle cluster; its path explains {explained_us} us",
            )
            demand(wait_us >= cost, f"where every message costs {cost} us a task starts after {wait_us} us")


@check
def check_costly_roles_saturate(architecture: Architecture) -> None:
    """A role that pays for each message is a server: its messages are spaced, and response times grow with it.

    Every component gets its work by message; one that launches without a message is reached in some other
    way than through a port.
    """
    arrivals = list(range(0, 300 * 20_000, 20_000))

    trace = trace_of("stream of jobs", arrivals, [[5_000]] * len(arrivals))
    case = Case("stream of jobs", 0, trace, Cluster.uniform(MACHINES))
    deliveries = Deliveries()

    base = _mean_response(case, run(architecture, case, interceptor=deliveries))
    received: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for _, _, to, _ in deliveries.delivered:
        received[role_of(to)][to] += 1

    deployment = architecture.build(case.cluster, architecture.defaults, Streams(0))
    for address in deployment.machines:
        demand(role_of(address) in received, f"{role_of(address)} launches tasks but is never sent a message")

    for role, counts in received.items():
        if role == SUBMITTER or sum(counts.values()) < len(arrivals):
            continue

        # Three times what the busiest component could do in the time: its queue grows to the end.
        cost = 3 * arrivals[-1] // max(counts.values())
        costly = Deliveries()
        slow = run(architecture, case, options=Options(costs={role: cost}), interceptor=costly)
        demand_all_finished(case, slow, architecture)

        for at in _gaps(costly, role):
            demand(at >= cost, f"a {role} that needs {cost} us per message took two within {at} us")

        mean = _mean_response(case, slow)
        demand(mean >= base + cost, f"a saturated {role} changes the mean response from {base} to {mean} us only")


def _mean_response(case: Case, records: Records) -> float:
    return (sum(records.answered_us) - sum(case.trace.arrival_us)) / case.trace.job_count


def _gaps(deliveries: Deliveries, role: str) -> list[Time]:
    last: dict[str, Time] = {}
    gaps = []
    for at, _, to, _ in deliveries.delivered:
        if role_of(to) == role:
            if to in last:
                gaps.append(at - last[to])
            last[to] = at
    return gaps


@check
def check_messages_are_declared(architecture: Architecture) -> None:
    """Every message that is sent is of a declared type, and only the submitter's protocol reaches the submitter."""
    for case in mixed_cases(seed=22):
        deliveries = Deliveries()
        run(architecture, case, interceptor=deliveries)
        for _, source, to, message in deliveries.delivered:
            declared = SUBMITTER_MESSAGES if SUBMITTER in (source, to) else architecture.messages
            demand(type(message) in declared, f"{source} sent {to} a {type(message).__name__}, which is not declared")


@check
def check_messages_survive_the_codec(architecture: Architecture) -> None:
    """Every declared message, and every one that was sent, comes out of the wire's decoder as it went in."""
    carried = decoder(architecture.messages | SUBMITTER_MESSAGES)
    deliveries = Deliveries()
    run(architecture, mixed_cases(seed=23)[1], interceptor=deliveries)

    example_values = [value for kind in architecture.messages | SUBMITTER_MESSAGES for value in examples(kind)]

    for message in [*example_values, *(message for _, _, _, message in deliveries.delivered)]:
        demand(isinstance(message, Message), f"{type(message).__name__} is not a volery.core.model.Message")
        decoded = carried.decode(msgspec.msgpack.encode(message))
        demand(type(decoded) is type(message) and decoded == message, f"{message} comes out of the codec as {decoded}")


@check
def check_unknown_messages_raise(architecture: Architecture) -> None:
    """A component that is sent a message which it does not list raises UnknownMessageError."""
    deployment = architecture.build(Cluster.uniform(MACHINES), architecture.defaults, Streams(0))
    for address, component in deployment.components.items():
        demand(_refuses(component), f"{address} takes a message that it does not list")


def _refuses(component: Component) -> bool:
    try:
        component.handle(_Unheard(), "nobody/0", 0)
    except UnknownMessageError:
        return True
    return False


@check
def check_stages_exist(architecture: Architecture) -> None:
    """Each declared stage names a method of a role in the module of the build function, and declares its extent."""
    module = sys.modules[architecture.build.__module__]
    for stage, realisation in architecture.stages.items():
        role, _, method = realisation.method.partition(".")
        stage_method = getattr(getattr(module, role, None), method, None)
        demand(
            callable(stage_method), f"stage {Stage(stage)} names {realisation.method}, which {module.__name__} lacks"
        )
        demand(realisation.extent == "full" or bool(realisation.how), f"stage {stage} is partial and has no `how`")

        parameter = realisation.when.partition("=")[0]
        demand(
            not parameter or parameter in architecture.defaults.__struct_fields__,
            f"stage {stage} holds when {realisation.when}, but there is no such parameter",
        )

    demand(Stage.J1 in architecture.stages, "no stage J1; a design must declare where jobs arrive")
    demand(bool(architecture.summary and architecture.source), "summary or source is empty; a design must have both")


BUSY_US = 10 * SECOND
BUSY_TASKS = 4 * MACHINES
LATE_US = SECOND
"""Arrival of the job whose task has to wait."""
NEWS_US = SECOND // 2
"""The time for which its reservations travel after its arrival."""
QUEUE_SEEDS = 5


@check
def check_worker_queues_are_reported(architecture: Architecture) -> None:
    """A task whose node knew of it long before it could start was launched with that wait as `waited_us`.

    All machines are busy when its job arrives. What a node receives then, and does not without the job, is about it.
    Concerns designs with queues at the workers; the nodes of others receive nothing then.
    """
    busy = trace_of("busy", [0], [[BUSY_US] * BUSY_TASKS])
    busy_and_late = trace_of("busy, and a late task", [0, LATE_US], [[BUSY_US] * BUSY_TASKS, [SECOND]])

    cluster = Cluster.uniform(MACHINES)
    deployment = architecture.build(cluster, architecture.defaults, Streams(0))
    node_of = {machine: address for address, machine in deployment.machines.items()}

    for seed in range(QUEUE_SEEDS):
        without, with_task = Deliveries(), Deliveries()
        run(architecture, Case("busy", 0, busy, cluster), seed=seed, interceptor=without)
        records = run(architecture, Case("busy, late", 0, busy_and_late, cluster), seed=seed, interceptor=with_task)

        start = records.start_us[BUSY_TASKS]
        if start == NEVER:
            continue

        address = node_of[records.worker[BUSY_TASKS]]
        # What the node receives beyond the run without the task is about the task.
        news_before, news_after = _news(without, address), _news(with_task, address)

        if len(news_after) > len(news_before) and start > LATE_US + 2 * NEWS_US:
            waited_least = start - LATE_US - NEWS_US - NEWS_US
            waited = records.waited_us.get(BUSY_TASKS, 0)
            demand(
                waited >= waited_least,
                f"a task that waited at its worker for at least {waited_least} us was launched with {waited}",
            )


def _news(deliveries: Deliveries, address: Address) -> list[Time]:
    """Times of the messages that reached a node just after the late job had arrived."""
    return [at for at, _, to, _ in deliveries.delivered if to == address and LATE_US <= at < LATE_US + NEWS_US]


SIMPLE: Final[Mapping[Any, tuple[Any, ...]]] = {
    int: (0, 7, (1 << 63) - 1),
    str: ("", "gm/2"),
    bytes: (b"", b"\x00\xff\x10"),
    bool: (True, False),
    float: (0.0, 1.5),
    type(None): (None,),
}


def examples(hint: Any) -> list[Any]:
    """Some values of a type; a struct's k-th example has the k-th example of each field.

    Raises:
        TypeError: the type cannot be in a message, because it is mutable or not known to the codec.
    """
    if hint in SIMPLE:
        return list(SIMPLE[hint])
    origin = get_origin(hint)
    parts = get_args(hint)

    if origin is Literal:
        return list(parts)

    if origin is tuple:
        inner = examples(parts[0])
        return [(), tuple(inner)] if len(parts) == 2 and parts[1] is ... else [tuple(examples(p)[0] for p in parts)]

    if origin is Union or type(hint).__name__ == "UnionType":
        return [value for part in parts for value in examples(part)]

    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if not hint.__struct_config__.frozen:
            raise TypeError(f"{hint.__name__} is not frozen; a message that was sent is never changed")

        hints = get_type_hints(hint)
        columns = [examples(hints[field]) for field in hint.__struct_fields__]
        count = max((len(column) for column in columns), default=1)
        return [hint(*(column[k % len(column)] for column in columns)) for k in range(count)]

    raise TypeError(f"{hint} cannot be in a message: use numbers, text, bytes, frozen structs and tuples of those")


def decoder(types: frozenset[type[Message]]) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a transport that carries all these types.

    Raises:
        TypeError: two of them have the same tag.
    """
    union = functools.reduce(operator.or_, sorted(types, key=lambda kind: (kind.__module__, kind.__name__)))
    return msgspec.msgpack.Decoder(union)
