"""Every claim with its sentence, its test, its values and its first form, as pages of tables; they are not committed.

index.html      all sources, the claims that are not decided with the CPU time of their next look, and all that five
                of the sources describe
KEY.html        a source: its headlines, its chapters, and experiment by experiment the claims, the measured values,
                the explanation
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from experiments.claims import NOT_TRIED, OF_THE_PROGRAM, STRICT, VERDICTS, Claim
from experiments.experiment import Experiment, Workload, claim_id
from experiments.first_forms import FirstForm, form_of
from experiments.headlines import WORDS, is_on_stand_ins, word_in_full, word_of
from experiments.ledger import EXPLANATIONS, Ledger, Paper, read_ledger
from experiments.notation import amount, claim_text, ours, spread, verdict
from experiments.papers import headlines_of, metrics_of, variant_text
from experiments.records import SHORT, Fact, Record, content_sha256
from experiments.things import Thing
from experiments.undecided import cheapest_first
from volery.look.html import EMPTY, Markup, code, joined, link, paragraph, scrolled_table, section, tag
from volery.look.text import NOTHING
from volery.report.page import page

COLUMNS: Final = (
    ("median", "delay_s.p50"), ("mean", "delay_s.mean"), ("p90", "delay_s.p90"), ("p99", "delay_s.p99"),
    ("max", "delay_s.max"), ("utilisation", "utilisation_mean"), ("inconsistencies", "counters.inconsistencies"),
)  # fmt: skip
INPUT_COLUMNS: Final = (
    ("median load", "load.median"), ("mean load", "load.mean"), ("p99 load", "load.p99"),
    ("highest p99 per constraint", "constraint_load.highest.p99"), ("waiting per second", "conflicts.waiting.mean"),
    ("collisions per second", "conflicts.collisions.mean"),
)  # fmt: skip
RANGED: Final = ("delay_s.p50", "delay_s.p99")
STYLE: Final = Markup("body { max-width: none } th, td { white-space: normal; text-align: left; min-width: 5rem }")
SEARCH: Final = Markup("""
for (const field of document.querySelectorAll("input[type=search]")) field.addEventListener("input", () => {
  for (const row of document.querySelectorAll("tbody tr"))
    row.hidden = !row.textContent.toLowerCase().includes(field.value.toLowerCase());
});""")


def details(folder: Path) -> dict[str, str]:
    """The pages by their names.

    Raises:
        InputError: when something in the folder is wrong or missing.
    """
    ledger = read_ledger(folder)
    return {"index.html": _index(ledger)} | {
        f"{paper.key}.html": _source_page(ledger, paper) for paper in ledger.papers.paper
    }


def _document(title: str, below: str, sections: Iterable[Markup]) -> str:
    search = paragraph(joined(("Rows with ", tag("input", type="search"))))
    parts = [search, *sections]
    return page(title, below, parts, head=tag("style", STYLE), tail=tag("script", SEARCH))


def _index(ledger: Ledger) -> str:
    word_rows: list[list[str | int]] = []
    rows: list[list[str | int]] = []
    for paper in ledger.papers.paper:
        members = ledger.experiments_of(paper)
        words = Counter[str](word_of(variants) for _, variants, _ in headlines_of(ledger, paper))
        counts = ledger.verdicts(members)
        title = link(f"{paper.key}.html", paper.title)
        word_rows.append([title, words.total(), *map(words.__getitem__, WORDS)])
        rows.append([title, len(members), *map(counts.__getitem__, VERDICTS)])
    parts = [_table(("source", "headlines", *WORDS), word_rows), _table(("source", "experiments", *VERDICTS), rows)]

    parts.append(section("Not decided, cheapest first", _undecided(ledger)))
    for number, source in ledger.sources.items():
        thing_rows = [_thing(ledger, thing) for thing in source.thing]
        heads = ("id", "what", "status", "where, or why not", "what it lacks", "what came out", "verdicts")
        parts.append(section(f"Source {number}: {source.title}", _table(heads, thing_rows)))
    return _document("Claims of published work", "All sources, and all that five of them describe.", parts)


def _undecided(ledger: Ledger) -> Markup:
    """The claims that more seeds may decide, with the CPU time of the next look of each."""
    papers = {claim.claim: experiment.paper for experiment, claim in ledger.undecided()}
    rows: list[list[str | int]] = []
    for claim in cheapest_first(claim for _, claim in ledger.undecided()):
        target = f"{papers[claim.claim]}.html#{claim.claim.partition('/')[0]}"
        cpu_s = "unknown" if claim.cpu_s is None else f"{claim.cpu_s:,.1f}"
        looks = f"{claim.seeds} seeds, next {claim.next_seeds}" if claim.next_seeds > claim.seeds else "timed stages"
        rows.append([link(target, claim.claim), claim.reading or NOTHING, looks, cpu_s, claim.why])
    return _table(("claim", "reading", "looks", "CPU seconds of the next look", "why"), rows)


def _thing(ledger: Ledger, thing: Thing) -> list[str | int]:
    """A thing with its status, and the claims that belong to it, each with its verdicts and a link."""
    lines = []
    for name in thing.claims:
        experiment, claim = ledger.claim(name, thing.id)
        words = ", ".join(dict.fromkeys(verdict.verdict for verdict in ledger.verdicts_of(experiment, claim)))
        target = f"{experiment.paper}.html#{experiment.name}"
        lines.append(joined((link(target, name), f": {words or 'tests the program for another claim'}")))
    place = thing.where or thing.absent
    return [thing.id, thing.says, ledger.status_of(thing), place, thing.lacks, thing.note, joined(lines, tag("br"))]


def _source_page(ledger: Ledger, paper: Paper) -> str:
    parts = [_headlines(ledger, paper), *(code(ledger.text(EXPLANATIONS, chapter)) for chapter in paper.chapters)]
    parts += [_experiment(ledger, experiment) for experiment in ledger.experiments_of(paper)]
    return _document(paper.title, paper.citation, parts)


def _headlines(ledger: Ledger, paper: Paper) -> Markup:
    """The headlines of a source; each variant has links to the experiments of its claims."""
    rows: list[list[str | int]] = []
    for headline, variants, _ in headlines_of(ledger, paper):
        lines = []
        is_mixed, metrics = not is_on_stand_ins(variants), metrics_of(variants)
        for variant in variants:
            names = dict.fromkeys(name.partition("/")[0] for name in variant.evidence.claims)
            targets = (link(f"{ledger.experiments[name].paper}.html#{name}", name) for name in names)
            values = variant_text(variant, is_alone=False, is_mixed=is_mixed, metrics=metrics)
            lines.append(joined((values, ": ", joined(targets, ", "))))
        reasons = [headline.why, headline.tried and f"Tried: {headline.tried}"]
        text = joined([tag("b", headline.claim), *filter(None, reasons)], tag("br"))
        rows.append([text, headline.published, joined(lines, tag("br")), word_in_full(variants)])
    return _table(("headline", "published by the source", "ours", "word"), rows)


def _experiment(ledger: Ledger, experiment: Experiment) -> Markup:
    record = ledger.records[experiment.name]
    explanation = ledger.text(EXPLANATIONS, experiment.name)
    return section(
        f"{experiment.figure}: {experiment.title}",
        paragraph(joined((tag("code", experiment.name), f": {_setting(experiment, record)}"))),
        _table(("claim", "published", "reading", "ours", "verdict"), list(_claim_rows(ledger, experiment))),
        *([] if record is None else _value_tables(record, experiment)),
        code(explanation) if explanation else EMPTY,
        id=experiment.name,
    )


def _setting(experiment: Experiment, record: Record | None) -> str:
    """The workloads of an experiment, its runs, and the age of its record."""
    workloads = "; ".join(map(_workload, experiment.workload))
    if record is None:
        return f"{workloads}; not run."
    parts = [f"{_count(len(record.populations), 'population')} of machines", _count(len(record.seeds), "seed")]
    parts.append(_count(record.runs, "run") if record.complete else f"{record.runs} of {record.planned} runs so far")
    stopped = f" ({record.stopped})" if record.stopped else ""
    return f"{workloads}; {', '.join(parts)}{stopped}. {_age(experiment, record)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _workload(workload: Workload) -> str:
    text = f"{workload.label} on {workload.workers:,} workers"
    if workload.stands_for:
        return f"{text} (a stand-in for {workload.stands_for})"
    return f"{text} (as the source defines it: {workload.is_source})" if workload.is_source else text


def _age(experiment: Experiment, record: Record) -> str:
    """The date and code of a record, the changes since, and checks by other code."""
    text = f"Recorded on {record.date} with code {record.code_sha256[:SHORT]}"
    if record.judged:
        text += f", judged on {record.judged}"
    if record.is_former:
        text += ", judged by former rules"
    if record.experiment_sha256 != content_sha256(experiment):
        text += ", before the experiment changed"
    check = record.checked
    if check is None:
        return f"{text}; no run was run again since."
    runs = f"{check.runs} of {record.runs} runs"
    return f"{text}; {runs} run again on {check.date} with code {check.code_sha256[:SHORT]}: same digests."


def _claim_rows(ledger: Ledger, experiment: Experiment) -> Iterator[list[str | int]]:
    """The claims with a row per judgement; the text of a claim stands in its first row."""
    for claim in experiment.claim:
        first = ledger.first_forms.get(claim_id(experiment.name, claim.id))
        text: list[str | int] = [_claim(claim, first), claim.published]
        judgements = ledger.judgements(experiment, claim)
        merged = {one.judgements[0]: one.verdict for one in ledger.verdicts_of(experiment, claim) if one.judgements}
        for judgement in judgements:
            values = joined(ours(claim, judgement), tag("br"))
            words = verdict(judgement)
            if merged.get(judgement) == OF_THE_PROGRAM:
                words = f"{OF_THE_PROGRAM}: by the text it is {words}"
            yield [*text, judgement.reading or NOTHING, values, words]
            text = ["", ""]
        if not judgements:
            yield [*text, NOTHING, NOTHING, NOT_TRIED]

    for name, form in ledger.first_forms.items():
        if form.dropped and name.startswith(f"{experiment.name}/"):
            yield [joined(_first_form(form), tag("br")), "", NOTHING, NOTHING, f"dropped on {form.dropped}"]


def _claim(claim: Claim, first: FirstForm | None) -> Markup:
    """The sentence of the source, our reading of it, the test, and the first form where that was another one."""
    lines: list[str] = [tag("b", f"{claim.section}, {claim.id}")]
    if claim.sentence:
        lines.append(f"\u201c{claim.sentence}\u201d")
    lines.append(f"Our reading: {claim.says}{f' ({claim.note})' if claim.note else ''}")
    lines.append(joined(("Order: " if claim.relation in STRICT else "Test: ", tag("code", claim_text(claim)))))
    if claim.program_of:
        lines.append(f"What the program of the source does in place of the words that {claim.program_of} tests.")
    if claim.input:
        lines.append(f"Set by an input that we chose: {claim.input}")
    if claim.changed:
        lines.append(f"Changed: {claim.changed}")
    if first is not None and first.form != form_of(claim):
        lines += _first_form(first)
    return joined(lines, tag("br"))


def _first_form(form: FirstForm) -> list[str]:
    gave = "; ".join(f"{verdict['verdict']} ({verdict['ours']})" for verdict in form.gave) or "never recorded"
    tested = msgspec.json.encode(form.form).decode()
    return [f"First form of {form.date}: {form.says}", joined((tag("code", tested), f" gave: {gave}"))]


def _value_tables(record: Record, experiment: Experiment) -> Iterator[Markup]:
    """The measured values of runs and of inputs, as means over populations."""
    facts: dict[tuple[str, str], dict[str, list[Fact]]] = {}
    for fact in record.facts:
        facts.setdefault((fact.workload, fact.of), {}).setdefault(fact.metric, []).append(fact)

    columns = tuple((metric.replace("_", " ").replace(".", " "), metric) for metric in experiment.columns) or COLUMNS
    for is_of_runs, candidates in ((True, columns), (False, INPUT_COLUMNS)):
        rows = {key: by_metric for key, by_metric in facts.items() if bool(key[1]) == is_of_runs}
        shown = [(name, metric) for name, metric in candidates if any(metric in row for row in rows.values())]
        if shown:
            heads = ("workload", "architecture", *(name for name, _ in shown))
            cells = [[*key, *(_value(row.get(metric, [])) for _, metric in shown)] for key, row in rows.items()]
            yield _table(heads, cells)


def _value(facts: Sequence[Fact]) -> str:
    """The mean over populations; with its range where a reader needs it."""
    if not facts:
        return NOTHING
    metric = facts[0].metric
    mean = sum(fact.mean for fact in facts) / len(facts)
    if metric in RANGED:
        return spread(metric, mean, min(fact.low for fact in facts), max(fact.high for fact in facts))
    return amount(metric, mean)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str | int]]) -> Markup:
    return scrolled_table(
        (tag("th", head) for head in heads), (tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    )
