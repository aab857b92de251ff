"""The page of an architecture in Markdown: its explanation, its message flow, and its entry in the registry."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from volery.core.component import Architecture
from volery.core.features import FEATURES, used_features
from volery.core.flow import Flow, Hop
from volery.core.stages import Realisation, Stage
from volery.look.text import markdown_table
from volery.report.flowplot import arrows_svg

COMMAND = "volery architectures --pages docs/architectures"
LABEL = r"(?=.{8} \S)[A-Z]\w{2,7} +"
"""A word at the beginning of a line of a module's docstring, in a column of nine letters."""
HEADS = {"Deviates": "Deviations"}
"""Labels that a page words otherwise."""
DOCUMENT = re.compile(r"(?:docs/)((?:reference/)?\w+\.md)")
"""A page that a module's docstring names; pages of architectures stand one folder below."""
INTRODUCTION = """
One page per scheduler: its reasons, and what is its own among messages, parameters and stages. Designs of one module
(presets, variants) share tables: the page of the first has all of it, the pages of the others what differs.

In the pictures, boxes are roles and arrows are messages, from the tables `receives` and `sends` of the components;
conformance checks compare them with the messages of runs. A picture has no order of time. `volery flow
NAME:PARAMETER=VALUE` draws the flow of any design under any parameters, and `volery flow NAME` lists its messages.

Stages are those of the [reference architecture](../reference/stages.md), each with the method that realises it; a
*partial* stage lacks the policy or part of the work, and one *with* a parameter is there under it alone. `volery
stages` prints [all stages of all designs](../reference/stages.md#stages-by-design). To a design that ignores
dependencies the driver sends tasks as they become ready; one that ignores amounts counts slots.

[Leadership](leadership.md) has the states of masters that may crash, and of the nodes that they lead.
"""
OF_STATES = (
    "In the pictures, boxes are states and arrows are transitions, *event / action*: what happens, and what else is "
    "done. Any other event is illegal in a state, and raises an error with the last transitions."
)


class DescribedDesign(msgspec.Struct, frozen=True):
    """A design and what was derived from it.

    Args:
        entry: Design in the registry.
        parameters: Name, type, default and meaning of each parameter.
        flow: Flow of messages with the defaults.
    """

    entry: Architecture
    parameters: Sequence[tuple[str, str, Any, str]]
    flow: Flow


def design_page(design: DescribedDesign, base: DescribedDesign | None, pictures: Sequence[tuple[str, str]]) -> str:
    """The page.

    Args:
        design: Design of the page.
        base: First design of the same module, whose page has everything in which the two are alike.
        pictures: Names of files beside the page, each with the parameters under which it holds: the defaults first.
    """
    entry = design.entry
    return "\n".join(
        [
            f"<!-- Written by `{COMMAND}`. -->",
            f"# {entry.name}",
            "",
            _sentence(entry.summary),
            "",
            f"Source: {entry.source}.",
            "",
            *_explanation(explanation(entry), list(_flow(entry, pictures[0][0]))),
            *(_module(entry) if base is None else _relation(entry, base.entry)),
            *_tables(design, base),
            *_workload(entry, base.entry if base else None),
            *_faults(entry, pictures[1:]),
        ]
    )


def index_page(designs: Sequence[DescribedDesign]) -> str:
    """The list of designs, and the messages that belong to none of them."""
    rows = [
        (f"[{design.entry.name}]({design.entry.name}.md)", _sentence(design.entry.summary), design.entry.source)
        for design in designs
    ]
    designs_of: dict[tuple[str, str], dict[str, None]] = {}
    for design in designs:
        for hop in design.flow.hops:
            if hop.message not in _own_messages(design.entry):
                designs_of.setdefault((f"`{hop.message}`", hop.meaning), {})[design.entry.name] = None

    all_names = [design.entry.name for design in designs]
    shared_rows = [(*message, _named(names, all_names)) for message, names in sorted(designs_of.items())]
    return "\n".join(
        [
            f"<!-- Written by `{COMMAND}`. -->",
            "# Architectures",
            INTRODUCTION,
            *markdown_table(("name", "description", "source"), rows),
            *_section("Messages of several designs", ("message", "meaning", "designs"), shared_rows),
            "```{toctree}\n:hidden:\n:glob:\n\n*\n```\n",
        ]
    )


def _named(names: Collection[str], all_names: Sequence[str]) -> str:
    """Names in words: those that are not meant, where these are fewer."""
    absent_names = [name for name in all_names if name not in names]
    if len(absent_names) > len(names):
        return ", ".join(names)
    return "all" + (f" but {', '.join(absent_names)}" if absent_names else "")


def states_pages(module: ModuleType, tables: Mapping[str, Mapping[Any, Any]]) -> dict[str, str]:
    """Return the page of a module with tables of states, by file name, and a picture of each table.

    Args:
        tables: Tables by title: (state, event) -> the state that follows, and the action.
    """
    name = module.__name__.rpartition(".")[2]
    summary, _, body = (inspect.getdoc(module) or "").partition("\n")
    lines = [f"<!-- Written by `{COMMAND}` from `{module.__name__}`; change that. -->", f"# {name.title()}", ""]
    lines += [summary, "", *_prose(body), OF_STATES, ""]
    texts = {}

    for title, table in tables.items():
        states = list(dict.fromkeys(state for state, _ in table))
        hops = [
            Hop(state.name, f"{_words(event.name)} / {_words(action.__name__)}", following.name, "")
            for (state, event), (following, action) in table.items()
        ]
        file = f"{name}-{title.lower()}.svg"
        texts[file] = arrows_svg({state.name: [state.name] for state in states}, hops)

        meanings = [(state.name, state.value) for state in states]
        meanings += [(_words(event.name), event.value) for event in dict.fromkeys(event for _, event in table)]
        actions = dict.fromkeys(action for _, action in table.values())
        meanings += [(f"/ {_words(action.__name__)}", _clause(inspect.getdoc(action) or "")) for action in actions]
        lines += [f"## {title}", "", f"![States and transitions: {title.lower()}]({file})", ""]
        lines += markdown_table(("state, event, / action", "meaning"), meanings)

    return {f"{name}.md": "\n".join(lines), **texts}


def _words(name: str) -> str:
    return name.lower().replace("_", " ").strip()


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].removesuffix(".")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def explanation(entry: Architecture) -> str:
    """The prose of NAME.md beside the design's module, which gives reasons; empty where there is none."""
    file = Path(sys.modules[entry.build.__module__].__file__ or "").with_name(f"{entry.name}.md")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _explanation(text: str, picture: Iterable[str]) -> Iterator[str]:
    """The prose, with the picture after its first section."""
    first, *other_sections = text.strip().split("\n\n## ")
    # The picture stands where a reader has the idea of the design, before its details.
    yield from ((first, "") if first else ())
    yield from picture
    for section in other_sections:
        yield f"## {section}"
        yield ""


def _module(entry: Architecture) -> Iterator[str]:
    """The module's docstring in Markdown."""
    yield "## Implementation"
    yield ""
    text = inspect.getdoc(sys.modules[entry.build.__module__]) or ""
    title, _, body = text.partition("\n")
    yield f"From the module `{entry.build.__module__}`: *{title}*"
    yield ""
    yield from _prose(body)


def _prose(body: str) -> Iterator[str]:
    """The body of a docstring: a heading per word that begins a line and stands apart from what follows."""
    for block in re.split(rf"\n(?={LABEL})", f"\n{body.strip()}"):
        labelled_block = re.match(rf"\s*({LABEL})(.*)", block, flags=re.DOTALL)
        head, sentence = (labelled_block[1].strip(), labelled_block[2]) if labelled_block else ("", block)
        sentence = DOCUMENT.sub(r"[\1](../\1)", " ".join(sentence.split()))

        if sentence:
            yield f"**{HEADS.get(head, head)}.** {_plain(sentence)}" if head else _plain(sentence)
            yield ""


def _plain(text: str) -> str:
    """Text in which Markdown takes nothing for markup but code and emphasised words."""
    return re.sub(r"(?<!\w)(\*\w[\w ]*\*)|(?<!\\)([*<|])", lambda match: match[1] or "\\" + match[2], text)


def _flow(entry: Architecture, picture: str) -> Iterator[str]:
    yield "## Message flow"
    yield ""
    yield f"![Message flow of {entry.name}]({picture})"
    yield ""


def _own_messages(entry: Architecture) -> frozenset[str]:
    """The names of messages that are declared in the folder of the design."""
    folder = ".".join(entry.build.__module__.split(".")[:3])
    return frozenset(kind.__name__ for kind in entry.messages if f"{kind.__module__}.".startswith(f"{folder}."))


def _messages(design: DescribedDesign) -> Iterator[Sequence[str]]:
    """A row per message of the design's own, with all its senders and receivers."""
    own = _own_messages(design.entry)
    hops_by_message: dict[str, list[Hop]] = {}
    for hop in design.flow.hops:
        if hop.message in own:
            hops_by_message.setdefault(hop.message, []).append(hop)

    for message, hops in hops_by_message.items():
        senders = ", ".join(dict.fromkeys(hop.source for hop in hops))
        receivers = ", ".join(dict.fromkeys(hop.to for hop in hops))
        yield senders, f"`{message}`", receivers, hops[0].meaning


def _parameters(design: DescribedDesign) -> Iterator[Sequence[str]]:
    for name, kind, default, meaning in design.parameters:
        alternatives = [choice for choice in kind.split(" | ") if choice != str(default)] if "|" in kind else []
        yield f"`{name}`", _shown(default) + (f" ({', '.join(alternatives)})" if alternatives else ""), meaning


def _shown(value: Any) -> str:
    return {"None": "none", "True": "true", "False": "false", "": "(empty)"}.get(str(value), str(value))


def _stages(stages: Mapping[Stage, Realisation]) -> Iterator[Sequence[str]]:
    for stage in Stage:
        if (declared := stages.get(stage)) is not None:
            clauses = (
                declared.how,
                "" if declared.extent == "full" else declared.extent,
                f"with `{declared.when}`" if declared.when else "",
            )
            yield stage.value, f"`{declared.method}`", "; ".join(clause for clause in clauses if clause)


def _tables(design: DescribedDesign, base: DescribedDesign | None) -> Iterator[str]:
    """Messages, parameters and stages: those of a design in which it differs from its base, or all."""
    heads: Sequence[str] = ("from", "message", "to", "meaning")
    yield from _differences("Messages", heads, _messages(design), _messages(base) if base else ())

    heads = ("parameter", "default (others)", "meaning")
    yield from _differences("Parameters", heads, _parameters(design), _parameters(base) if base else ())

    title, heads = "Stages of the reference architecture", ("stage", "method", "how")
    base_stages = dict(base.entry.stages) if base else {}
    for stage, realisation in design.entry.stages.items():
        # A preset has without a condition what its base has with the parameter that the preset sets.
        if stage in base_stages and not realisation.when:
            base_stages[stage] = msgspec.structs.replace(base_stages[stage], when="")
    yield from _differences(title, heads, _stages(design.entry.stages), _stages(base_stages))


def _differences(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], base_rows: Iterable[Sequence[str]]
) -> Iterator[str]:
    """A section with the rows that the base has not, or nothing."""
    excluded = frozenset(base_rows)
    if own_rows := [row for row in rows if row not in excluded]:
        yield from _section(title, heads, own_rows)


def _relation(entry: Architecture, base: Architecture) -> Iterator[str]:
    yield "## Implementation"
    yield ""
    yield f"Its module is that of [{base.name}]({base.name}.md). What is alike, and not said here, is on that page."
    missing = [stage.value for stage in Stage if stage in base.stages and stage not in entry.stages]
    if missing:
        yield f"Stages that {base.name} declares and it does not: {', '.join(missing)}."
    yield ""


def _workload(entry: Architecture, base: Architecture | None) -> Iterator[str]:
    """The features of a workload by which the design decides, in a sentence or two."""
    used = used_features(entry, entry.defaults)
    conditional = [
        f"{feature} with `{entry.features[feature]}`"
        for feature in FEATURES
        if feature in entry.features and feature not in used
    ]
    ignored = [feature for feature in FEATURES if feature not in used and feature not in entry.features]

    yield "## Workload"
    yield ""
    yield f"It decides by {', '.join(feature for feature in FEATURES if feature in used)}."
    # A preset inherits the conditions with the parameters.
    if conditional and (base is None or base.features != entry.features):
        yield f"It can decide by {'; '.join(conditional)}."
    if ignored:
        yield f"It ignores {', '.join(ignored)}."
    yield ""


def _faults(entry: Architecture, pictures: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "## Delays and faults"
    yield ""
    yield f"Link delays of a lone task on an idle cluster: {entry.conformance.hops}."
    tolerated = ", ".join(f"`{fault}`" for fault in sorted(entry.conformance.tolerates))
    if not tolerated:
        yield "It needs a reliable network."
    else:
        parameters = ",".join(
            f"{name}={str(value).lower()}" for name, value in entry.conformance.fault_parameters.items()
        )
        yield f"It tolerates {tolerated}" + (f"; all but duplication with `{parameters}`." if parameters else ".")
    yield ""

    for file, setting in pictures:
        yield f"![Message flow with {setting}]({file})"
        yield ""


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from markdown_table(heads, rows)
