"""The page of messages between the components of each design, field by field."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_type_hints

from docs.pages.structs import args, cell
from volery import architectures
from volery.architectures import REGISTRY
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.flow import SUBMISSIONS, flow_of
from volery.core.model import Cluster, Message
from volery.core.streams import Streams
from volery.look.text import markdown_table

MACHINES: Final = 40
SHARES: Final = "a:1+b:1"
INTRODUCTION: Final = (
    "What components say to each other, from the classes of the messages and from the tables `receives` and `sends` of "
    "the roles, under the defaults and under each alternative of a parameter. Names of fields end in their unit "
    "(`_us`: microseconds). On the wire a message is an array in MessagePack: its name, and its fields in this order."
)
OF_SUBMITTERS: Final = (
    "Every design speaks these with whoever submits. Messages that are *coalescable* may ride along with later ones."
)
Hops = dict[str, dict[tuple[str, str], None]]


def messages() -> Iterator[str]:
    """Per family of designs, each message with its fields, and who sends it to whom."""
    yield from ("# Messages", "", INTRODUCTION, "", "## The submitter's", "", OF_SUBMITTERS, "")
    spoken = _submitters()
    yield from markdown_table(
        ("message", "fields", "meaning"), [(_name(message), _fields(message), _meaning(message)) for message in spoken]
    )

    links = _links()
    yield from ("## Of links that may lose", "", "With `reliable=true` all that components say travels in these.", "")
    yield from markdown_table(
        ("message", "fields", "meaning"), [(_name(message), _fields(message), _meaning(message)) for message in links]
    )

    for names, family_messages in _families({*spoken, *links}):
        yield from (f"## {', '.join(names)}", "")

        hops = _hops([REGISTRY[name] for name in names])
        fields = [_fields(message) for message in family_messages]
        sent_messages = [
            message
            for message in family_messages
            if message.__name__ in hops or any(message.__name__ in text for text in fields)
        ]

        rows = [
            (_name(message), _fields(message), _way(hops.get(message.__name__, {})), _meaning(message))
            for message in sent_messages
        ]
        yield from markdown_table(("message", "fields", "from > to", "meaning"), rows)


def _families(apart: set[type[Message]]) -> Iterator[tuple[list[str], list[type[Message]]]]:
    """Designs that speak the same messages, with those that are theirs."""
    families: dict[frozenset[type], list[str]] = defaultdict(list)
    for name, entry in REGISTRY.items():
        families[entry.messages].append(name)

    for spoken, names in families.items():
        yield names, sorted(spoken - apart, key=lambda message: message.__name__)


def _submitters() -> list[type[Message]]:
    """Those that go to or from the submitter in any design."""
    from volery.core import events

    requests = sorted(SUBMISSIONS, key=lambda message: message.__name__)
    answers = [events.JobAccepted, events.JobRejected, events.JobDone]
    return [*requests, *answers]


def _links() -> list[type[Message]]:
    from volery.roles.recovery.channel import LINK_MESSAGES

    return sorted(LINK_MESSAGES, key=lambda message: message.__name__)


def _hops(entries: list[Architecture]) -> Hops:
    """Per message, between which roles it goes, under any one parameter of these designs."""
    hops: Hops = defaultdict(dict)
    for entry in entries:
        for parameters in _settings(entry):
            try:
                config = architectures.configure(entry, parameters)
                deployments = [entry.build(cluster, config, Streams(0)) for cluster in _clusters(entry)]
            except InputError:
                continue  # an alternative that wants others beside it

            for deployment in deployments:
                for hop in flow_of(deployment).hops:
                    hops[hop.message][hop.source, hop.to] = None

    return hops


def _clusters(entry: Architecture) -> list[Cluster]:
    slots = Cluster.uniform(MACHINES)
    amounts = Cluster(slots.constraints, slots.slots, resources=("cpu_milli",), capacities=((1000,),) * MACHINES)
    return [slots, amounts] if entry.vectors else [slots]


def _settings(entry: Architecture) -> Iterator[Mapping[str, Any]]:
    """The defaults, what makes it bear faults, alternatives of each parameter, and what switches stages on."""
    yield {}
    yield entry.conformance.fault_parameters

    for parameter in architectures.parameters(entry):
        values = parameter.type.split(" | ") if "|" in parameter.type else ["true", "false"]
        if "|" in parameter.type or parameter.type == "bool":
            yield from ({parameter.name: value} for value in values)
        else:
            yield from ({parameter.name: value} for value in entry.conformance.fuzzed.get(parameter.name, ()))

        if parameter.name == "shares":
            yield {"shares": SHARES}
            yield {**entry.conformance.fault_parameters, "shares": SHARES}

    for realisation in entry.stages.values():
        name, equals, value = realisation.when.partition("=")
        if equals:
            yield {name: value}


def _name(message: type[Message]) -> str:
    return f"`{message.__name__}`" + (" (coalescable)" if message.coalescable else "")


def _fields(message: type[Message]) -> str:
    """Each with its type."""
    hints = get_type_hints(message)
    return ", ".join(f"`{name}`: {_type(hints[name])}" for name in message.__struct_fields__) or "none"


def _type(hint: Any) -> str:
    """The text of a type without the names of modules."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


def _meaning(message: type[Message]) -> str:
    """The whole docstring, fields last."""
    docstring = inspect.cleandoc(message.__doc__ or "").partition("Args:")[0]
    meanings = args(message)
    fields = (f"`{name}`: {text.rstrip('.')}." for name, text in meanings.items() if name in message.__struct_fields__)
    return cell(f"{docstring} {' '.join(fields)}")


def _way(hops: Mapping[tuple[str, str], None]) -> str:
    return ", ".join(f"{source} > {to}" for source, to in hops)
