"""The page of an architecture in Markdown: its explanation, its message flow, and its entry in the registry."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from volery.core.component import AMOUNTS, DEPENDENCIES, Architecture
from volery.core.features import FEATURES
from volery.core.flow import Flow
from volery.core.stages import STAGES, Stage
from volery.look.text import markdown_table

COMMAND = "volery architectures --pages docs/architectures"
ALWAYS = "always"
LABEL = r"(?=.{8} \S)[A-Z]\w{2,7} +"
"""A word at the beginning of a line of a module's docstring, in a column of nine letters."""
HEADS = {"Deviates": "Deviations"}
"""Labels that a page words otherwise."""
DOCUMENT = re.compile(r"(?:docs/)((?:reference/)?\w+\.md)")
"""A page that a module's docstring names; pages of architectures stand one folder below."""
PARTIAL = "A *partial* stage lacks the policy or part of the work; one *with* a parameter is there under it alone."
OF_ALL = (
    "One page per scheduler of the registry: purpose, cost, message flow, parameters, stages, tolerated faults. "
    "`volery flow NAME:PARAMETER=VALUE` draws the flow of any of them under any parameters."
)


def design_page(
    entry: Architecture,
    parameters: Sequence[tuple[str, str, Any, str]],
    flow: Flow,
    pictures: Sequence[tuple[str, str]],
) -> str:
    """The page.

    Args:
        parameters: name, type, default and meaning of each parameter.
        flow: the flow of messages with the defaults.
        pictures: names of files beside the page, each with the parameters under which it holds: the defaults first.
    """
    return "\n".join(
        [
            f"<!-- Written by `{COMMAND}` from the registry and the module; change those. -->",
            f"# {entry.name}",
            "",
            _sentence(entry.summary),
            "",
            f"Source: {entry.source}.",
            "",
            *_explanation(explanation(entry), list(_flow(entry, pictures[0][0]))),
            *_module(entry),
            *_section("Messages", ("from", "message", "to", "meaning"), _messages(flow)),
            *_section("Parameters", ("parameter", "type", "default", "meaning"), _parameters(parameters)),
            *_section("Stages of the reference architecture", ("stage", "", "extent", "method", "how"), _stages(entry)),
            PARTIAL,
            "",
            *_section("Features of a workload that it uses", ("feature", "when"), _features(entry)),
            *_faults(entry, pictures[1:]),
        ]
    )


def index_page(entries: Iterable[Architecture]) -> str:
    rows = [(f"[{entry.name}]({entry.name}.md)", _sentence(entry.summary), entry.source) for entry in entries]
    return "\n".join(
        [
            f"<!-- Written by `{COMMAND}`. -->",
            "# Architectures",
            "",
            OF_ALL,
            "",
            *markdown_table(("name", "description", "source"), rows),
            "```{toctree}\n:hidden:\n:glob:\n\n*\n```\n",
        ]
    )


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
    """The module's docstring in Markdown: a heading per word that begins a line and stands apart from what follows."""
    yield "## Implementation"
    yield ""
    text = inspect.getdoc(sys.modules[entry.build.__module__]) or ""
    title, _, body = text.partition("\n")
    yield f"From the module `{entry.build.__module__}`: *{title}*"
    yield ""

    for block in re.split(rf"\n(?={LABEL})", f"\n{body.strip()}"):
        labelled_block = re.match(rf"\s*({LABEL})(.*)", block, flags=re.DOTALL)
        head, sentence = (labelled_block[1].strip(), labelled_block[2]) if labelled_block else ("", block)
        sentence = DOCUMENT.sub(r"[\1](../\1)", " ".join(sentence.split()))

        if sentence:
            yield f"**{HEADS.get(head, head)}.** {_plain(sentence)}" if head else _plain(sentence)
            yield ""


def _plain(text: str) -> str:
    """Text that Markdown does not take for markup."""
    return re.sub(r"(?<!\\)([*<|])", r"\\\1", text)


def _flow(entry: Architecture, picture: str) -> Iterator[str]:
    yield "## Message flow"
    yield ""
    yield f"![Message flow of {entry.name}]({picture})"
    yield ""
    yield (
        "Boxes are roles, arrows are messages, from the tables `receives` and `sends` of the components; conformance "
        "checks compare them with the messages of runs. The picture has no order of time."
    )
    yield ""


def _messages(flow: Flow) -> Iterator[Sequence[str]]:
    for hop in flow.hops:
        yield hop.source, f"`{hop.message}`", hop.to, hop.meaning


def _parameters(parameters: Iterable[tuple[str, str, Any, str]]) -> Iterator[Sequence[str]]:
    for name, kind, default, meaning in parameters:
        shown = {None: "none", True: "true", False: "false", "": "(empty)"}.get(default) if _hashable(default) else None
        yield f"`{name}`", kind, shown or str(default), meaning


def _hashable(value: Any) -> bool:
    return value is None or isinstance(value, str | bool)


def _stages(entry: Architecture) -> Iterator[Sequence[str]]:
    for stage in Stage:
        declared = entry.stages.get(stage)
        if declared is not None:
            remark = declared.how + (f" (with `{declared.when}`)" if declared.when else "")
            yield stage.value, STAGES[stage].name, declared.extent, f"`{declared.method}`", remark


def _features(entry: Architecture) -> Iterator[Sequence[str]]:
    ignored = {AMOUNTS: "slots alone", DEPENDENCIES: "the driver sends tasks as they become ready"}
    for feature in FEATURES:
        condition = entry.features.get(feature, ignored.get(feature, "ignored"))
        yield feature, f"with `{condition}`" if feature in entry.features and condition else condition or ALWAYS


def _faults(entry: Architecture, pictures: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "## Faults"
    yield ""
    claims = entry.conformance
    tolerated = ", ".join(f"`{fault}`" for fault in sorted(claims.tolerates))
    if not tolerated:
        yield "It needs a reliable network."
    else:
        parameters = ", ".join(f"{name}={str(value).lower()}" for name, value in claims.fault_parameters.items())
        yield f"It tolerates {tolerated}" + (f"; all but duplication need `{parameters}`." if parameters else ".")
    yield ""

    for file, setting in pictures:
        yield f"Further messages with `{setting}`:"
        yield ""
        yield f"![Message flow of {entry.name} with {setting}]({file})"
        yield ""

    hops = f"{claims.hops} link delays" if claims.hops != 1 else "one link delay"
    yield f"A lone task on an idle cluster costs {hops} from its submission to the answer."
    yield ""


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from markdown_table(heads, rows)
