"""The contract between schedulers and their driver: Component, Deployment, Architecture.

A component touches its own fields and its port, nothing else. It reads no clock and draws from no random source but the
stream that it was given, so that the same object runs in the lab and live, and a journal of its events replays exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from volery.core.events import Event
from volery.core.model import SUBMITTER, Address, Cluster, JobId, Message, Time
from volery.core.port import Port
from volery.core.records import Records
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.core.trace import Trace

Capability = TypeVar("Capability")
Handler = Callable[..., None]
Sends = frozenset[tuple[type[Message], str]]
"""Messages that a role sends, each with the role of the receiver."""


class UnknownMessageError(TypeError):
    """A component was handed an event that neither its `receives` table lists nor a part takes."""


class Attached(Protocol):
    """A part of a component that handles and sends messages of its own.

    Attributes:
        takes: Types of the events that it handles.
        sends: Messages that it sends, each with the role of the receiver.
    """

    takes: ClassVar[frozenset[type]]
    sends: ClassVar[Sends]

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Handle one of its events."""


class Component:
    """A role of an architecture: Global Master, Local Master, distributor, node ...

    `receives` and `sends` are the protocol at a glance. Handlers are resolved by name for each subclass, so that a
    subclass which overrides a method need not repeat the table. What may be sent under some parameters alone is in
    `sends`, too, and `emits` leaves it out; roles that a deployment lacks do not matter there.

    Attributes:
        attached: Parts with messages of their own, which are not in these tables.
    """

    __slots__ = ("_port",)
    receives: ClassVar[Mapping[type, Handler]] = {}
    sends: ClassVar[Sends] = frozenset()
    attached: Sequence[Attached] = ()
    _port: Port

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Bind the table's entries to this class's own methods."""
        super().__init_subclass__(**kwargs)
        # The table names the base's functions; without this an override in a subclass would never be called.
        cls.receives = {event: getattr(cls, handler.__name__, handler) for event, handler in cls.receives.items()}

    def bind(self, port: Port) -> None:
        """Give the component its port; the driver does this once, before `start`."""
        self._port = port

    def takes(self) -> Collection[type]:
        """The types of events that `handle` does not refuse."""
        return frozenset(self.receives).union(*[part.takes for part in self.attached])

    def emits(self) -> Sends:
        """The messages that this one may send as it was built, each with the role that receives it."""
        return self.sends.union(*[part.sends for part in self.attached])

    def start(self, now: Time) -> None:
        """Begin: set first timers, send first messages. A restart is a new component with `start`."""

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """The only door. It runs alone and to the end; an unknown message raises `UnknownMessageError`."""
        handler = self.receives.get(type(event))
        if handler is None:
            self.handle_attached(event, source, now)
        else:
            handler(self, event, source, now)

    def handle_attached(self, event: Event, source: Address, now: Time) -> None:
        """Pass an event that `receives` does not list to the first attached part that takes it.

        Raises:
            UnknownMessageError: no part takes it.
        """
        for part in self.attached:
            if type(event) in part.takes:
                part.handle(event, source, now)
                return
        raise UnknownMessageError(unknown(self, event, source, now))

    def believed_free(self) -> Mapping[int, int] | None:
        """The free slots of each machine in the component's view, to compare with the truth; None: it has no view.

        No handler calls this.
        """
        return None

    def check(self) -> None:
        """Raise AssertionError on a broken invariant; tests call it after every event."""

    def check_rest(self) -> None:
        """Raise AssertionError if anything is left, or a view is untrue, when all is done and no fault lasts."""


def sent_to(role: str, *messages: type[Message]) -> Sends:
    """Pairs of each message and the role that receives it, for `Component.sends`."""
    return frozenset([(message, role) for message in messages])


def sent_by(*components: type[Component]) -> frozenset[type[Message]]:
    """The messages that components of these classes send to each other."""
    return frozenset([message for kind in components for message, role in kind.sends if role != SUBMITTER])


def unknown(component: object, event: object, source: Address, now: Time) -> str:
    """The text of the error for an event without a handler."""
    event_types = component.takes() if isinstance(component, Component) else getattr(component, "receives", ())
    event_names = ", ".join(sorted(event_type.__name__ for event_type in event_types))
    return (
        f"{type(component).__name__} does not receive {event!r} (from {source} at {now} us); it receives {event_names}"
    )


class Deployment(msgspec.Struct, frozen=True):
    """An architecture built for one cluster.

    Args:
        components: Components by address; the part of an address before "/" is the role.
        machines: Node address -> number of the machine that it stands on.
        entry: (Job) -> the address to which it is submitted.
        delays: (Role of the sender, role of the receiver) -> delay in microseconds, where the design itself sets
            another than the network's default, for example node > LM 0.
        capabilities: Further things that the driver may ask of the design, at most one of each class; see
            `volery.core.capabilities`.
        entry_of_user: Entries of users whose jobs go elsewhere, by the user's name; see `entry_for`.
    """

    components: Mapping[Address, Component]
    machines: Mapping[Address, int]
    entry: Callable[[JobId], Address]
    delays: Mapping[tuple[str, str], Time] = {}
    capabilities: tuple[object, ...] = ()
    entry_of_user: Mapping[str, Address] = {}

    def __post_init__(self) -> None:
        _check_classes(self.capabilities)

    def entry_for(self, job: JobId, user: str) -> Address:
        """The address to which a job of a user is submitted."""
        return self.entry_of_user.get(user) or self.entry(job)

    def capability(self, kind: type[Capability]) -> Capability | None:
        """The capability of this class; None: the design does not declare it."""
        return _of_class(self.capabilities, kind)

    def replaced(self, capability: object) -> Deployment:
        """The same with this capability in place of the one of its class."""
        other_capabilities = [candidate for candidate in self.capabilities if type(candidate) is not type(capability)]
        return msgspec.structs.replace(self, capabilities=(*other_capabilities, capability))


Simulate = Callable[[Deployment, Trace, Cluster], Records]
"""The lab's own kernel, for designs that learn: it runs components of theirs that have never been started."""


class Learning(msgspec.Struct, frozen=True):
    """Learning of a design from earlier runs, before it is built.

    Args:
        parameter: Parameter that takes what was learned.
        by: Parameters on which it depends; runs that differ in others share it.
        learn: (Configuration, records of earlier runs, the lab's kernel) -> a value of the parameter. A pure function.
    """

    parameter: str
    by: tuple[str, ...]
    learn: Callable[[Any, Records, Simulate], Any]


FAULT_CLASSES = ("loss", "duplication", "delay", "partition", "crash:ROLE", "gone:ROLE")
"""Classes of faults. Delay lets messages of one link overtake each other; crash:gm is the crash of a component of that
role, and of the machine with all that runs on it where the component stands on one; gone:gm is the crash of one that
does not come back while jobs are open, as long as another of its role is left."""


class Conformance(msgspec.Struct, frozen=True):
    """Claims of a design that conformance checks and fault injection verify, and the parameters for them.

    Args:
        hops: Count of link delays between the submission of a task to an idle cluster and the answer that its job is
            done.
        tolerates: Classes of faults, see `FAULT_CLASSES`, that it survives: duplication with its defaults, the others
            with `fault_parameters`.
        fault_parameters: Parameters under which it survives them.
        fuzzed: Further parameters, each with values among which storms choose; with some of them a deployment may have
            no `CrashRecovery`, and then nothing crashes. Where it places vectors, too, storms draw amounts.
        immediate: Parameters for conformance checks: no decision time, no cycle, long retry intervals. Only then does a
            lone task cost its hops alone; and short retry intervals make runs of overloaded clusters slow.
        gangs: Name of the parameter that makes the tasks of a job a gang, where there is one: they start together or
            never; "" where there is none. Conformance sets it for the check of gangs, and only there.
        tags: Name of the parameter with which it heeds tag constraints between tasks (`TagPlacement`); "" where it
            never does. Conformance sets it for the check of them.
    """

    hops: int
    tolerates: frozenset[str] = frozenset()
    fault_parameters: Mapping[str, Any] = {}
    fuzzed: Mapping[str, tuple[Any, ...]] = {}
    immediate: Mapping[str, Any] = {}
    gangs: str = ""
    tags: str = ""


class FederationDefaults(msgspec.Struct, frozen=True):
    """Parameters that a federation has where its file sets nothing else; the lab keeps `defaults`."""

    parameters: Mapping[str, Any] = {}


class PolicyNames(msgspec.Struct, frozen=True):
    """Function from a configuration to names of policies by stage, of a design that is assembled from policies."""

    of: Callable[[Any], Mapping[Stage, str]]


class UnusedFeatures(msgspec.Struct, frozen=True):
    """Function from a configuration to features that the design declares and does not use under it."""

    of: Callable[[Any], frozenset[str]]


class DeclaredCaptions(msgspec.Struct, frozen=True):
    """Texts of a recording for the first message of a kind, or the first counted fact, by its name.

    They are for readers new to the design, and may have {sender}, {receiver}, {tasks}, {count}. Without them messages
    are described by their documentation.
    """

    texts: Mapping[str, str] = {}


AMOUNTS: Final = "amounts"
DEPENDENCIES: Final = "dependencies"


class Architecture(msgspec.Struct, frozen=True):
    """A registry entry: a published design, or a preset of one.

    Args:
        name: Name on the command line.
        summary: Description in one line.
        source: Paper and section.
        defaults: Configuration when nothing is given; its class lists the parameters with their descriptions.
        messages: Messages that the codec must carry beyond the submitter's protocol.
        stages: Methods by the stages of the reference architecture that they realise.
        build: (Cluster, configuration, random streams) -> the components.
        conformance: Claims that checks verify.
        features: Features of a workload by which it decides, each with when: "" always, else a parameter that has to be
            set, or `parameter=value|value`, or several of these as `.. or ..`; see `volery.core.features`. Every
            design uses constraints: one without an entry has not declared its features. With `amounts` it places
            requests for several resources; otherwise it uses slots alone. With `dependencies` it takes workflows whole:
            Submit and MoreTasks carry parents, and it decides itself when a task may start (stage T1). Otherwise the
            driver sends tasks as they become ready.
        capabilities: What few designs have, at most one of each class: `FederationDefaults`, `PolicyNames`, `Learning`,
            `UnusedFeatures`, `DeclaredCaptions`.
    """

    name: str
    summary: str
    source: str
    defaults: msgspec.Struct
    messages: frozenset[type[Message]]
    stages: Mapping[Stage, Realisation]
    build: Callable[[Cluster, Any, Streams], Deployment]
    conformance: Conformance
    features: Mapping[str, str] = {}
    capabilities: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        _check_classes(self.capabilities)

    @property
    def vectors(self) -> bool:
        """True if it places requests for several resources."""
        return AMOUNTS in self.features

    @property
    def graphs(self) -> bool:
        """True if it takes workflows whole."""
        return DEPENDENCIES in self.features

    def capability(self, kind: type[Capability]) -> Capability | None:
        """The capability of this class; None: the design does not declare it."""
        return _of_class(self.capabilities, kind)

    def parameters_in_federation(self) -> Mapping[str, Any]:
        """Parameters that a federation has where its file sets nothing else."""
        return (self.capability(FederationDefaults) or FederationDefaults()).parameters

    def captions(self) -> Mapping[str, str]:
        """Texts of recordings by names of messages and facts; empty where it declares none."""
        return (self.capability(DeclaredCaptions) or DeclaredCaptions()).texts


def _check_classes(capabilities: Iterable[object]) -> None:
    kinds = [type(capability) for capability in capabilities]
    assert len(kinds) == len({*kinds}), f"two capabilities of one class: {[kind.__name__ for kind in kinds]}"


def _of_class(capabilities: Iterable[object], kind: type[Capability]) -> Capability | None:
    return next((capability for capability in capabilities if isinstance(capability, kind)), None)


def role_of(address: Address) -> str:
    """The role in an address: "lm" in "lm/4"."""
    return address.partition("/")[0]
