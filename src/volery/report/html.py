"""The report of a study: one HTML file that needs no network and says what matters without scripts.

Where scripts run, views that answer to the reader take the place of some pictures (`volery.report.explore`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from volery.core.flow import Flow
from volery.look.html import EMPTY, Markup, code, facts, folded, joined, paragraph, section, tag
from volery.look.text import NOTHING, digits, duration, shortened
from volery.metrics import RunSummary
from volery.report import best, flowplot, gantt
from volery.report.axes import bare_label
from volery.report.columns import (
    ALLOCATION,
    BEST,
    CONFLICTS,
    COSTS,
    MEAN_PLACE,
    PAIRS,
    SLOWDOWN,
    STATISTICS,
    cells,
    heads,
    mean,
)
from volery.report.comparisons import comparisons_part
from volery.report.explore.content import STYLE, Content, RunExplanation, explored, head, mount, script, scripted, still
from volery.report.folder import ShownManifest, StoredResults, read_results, read_timeline
from volery.report.groups import RunGroup, group_runs, setting_of
from volery.report.notes import end_rule, end_sentence, notes, warnings
from volery.report.page import TableRow, figure, page, table, write_page
from volery.report.parquet import KINDS, ConflictTable
from volery.report.pictures import (
    FIGURES_MAX,
    CaptionedPicture,
    allocation_pictures,
    axis_pictures,
    conflict_pictures,
    delay_pictures,
    load_pictures,
    settings,
    stage_times,
    utilisation_pictures,
)
from volery.report.schema import REPORT, StageProfile
from volery.report.sections import Section, sections
from volery.report.tables import plus_minus
from volery.report.verdict import (
    CHOICES,
    DRAWN_ANEW,
    PAIRS_TOLD_WHOLE,
    WORKLOAD,
    caution,
    confidence_of,
    headline,
    is_of_one_seed,
)

SENTENCES_MAX = 8
ONE_MODEL: Final = ("constraints", 1)
TOLD_APART: Final = frozenset({"trace", "workers", "slots", "machines", "cutoff_s"})
"""Axes that the section on what was run tells of in other words."""
TIMELINES_MAX = 6
"""Pictures of single runs, each of up to 2,000 bars."""
STAGE_CAPTION: Final = (
    "Left, single calls without the declared methods that they call: the middle half as a box, the median as a mark, "
    "90 % of them as a line, the longest as a dot; dashed: what measuring adds to each. Right: each method's share."
)

CONFLICTS_NOTE: Final = (
    "How many tasks are in each other's way at the beginning of each second, before any scheduler has a say: tasks are "
    "taken to start on arrival, and no delay is carried over into later seconds (IoT 2023, figure 5, which leaves open "
    "what exactly it counts, so that there are two). Waiting: tasks that no schedule can run at once with the others, "
    "even if all may switch to other machines (a lower bound). Collisions: each task draws one of the slots that it "
    "fits, and this is the expected number that find theirs taken."
)


def write_report(folder: Path, explanations: Sequence[RunExplanation] = ()) -> Path:
    """Write report.html into a results folder and return its path; an earlier one is replaced at once or not at all.

    Args:
        explanations: explanations, by runs that explain themselves, of the tasks that waited longest.

    Raises:
        InputError: when a file of the folder is missing or damaged, or the report cannot be written.
    """
    results = read_results(folder)
    text = render(results, explored(results, explanations).content)
    path = folder / REPORT
    write_page(path, text)
    return path


def render(results: StoredResults, content: Content) -> str:
    """The page as text, with what its scripts read."""
    groups = group_runs(results.summary.runs)
    title = str(results.manifest.config.get("name") or "comparison of schedulers")

    title = shortened(title[0].upper() + title[1:])
    parts = (
        _verdict(results),
        section("What was run", _what_was_run(results.manifest, groups)),
        section("Who is lowest at what", _best_table(groups, confidence_of(results.summary.differences))),
        section(
            "Delay",
            _delay_table(groups),
            *map(paragraph_note, notes(groups)),
            mount("delays"),
            still("delays", *(() if content.serves else (*_figures(delay_pictures(results, groups)), _beyond(groups)))),
        ),
        section("Over the axes", *_figures(axis_pictures(results))),
        *_comparisons(results),
        section("Job by job", _pair_view(content)),
        section("Slowdown", _slowdown_table(groups)),
        section(
            "Utilisation and cost",
            _cost_table(groups),
            mount("course"),
            still("course", *(() if content.serves else _figures(utilisation_pictures(results, groups)))),
        ),
        section("What ran where and when", *_timeline_figures(results)),
        section("Why a task waited", _why_view(content)),
        section("Where the allocation time went", _allocation_table(groups), *_figures(allocation_pictures(groups))),
        *map(_table_section, sections(groups, str(results.manifest.config.get("baseline") or ""))),
        section("Time per stage", *_stage_figures(results)),
        section("Counters", _counter_table(groups)),
        section("Load per placement constraint", *_load_figures(results)),
        section("Scheduling conflicts", *(_conflicts(results, content) if results.conflicts else ())),
        section("Message flow", *_flow_figures(results)),
        section("How to verify", _verify(results)),
    )

    code_of_page = script()
    return page(
        title,
        f"Volery {results.manifest.volery_version} · {results.manifest.created}",
        parts,
        STYLE,
        head=head(code_of_page, serves=content.serves),
        tail=scripted(content, code_of_page),
    )


def _comparisons(results: StoredResults) -> Iterator[Markup]:
    """Both kinds of chance, apart; one seed tells nothing of choices where jobs are compared."""
    differences, on_days = results.summary.differences, results.summary.on_days_like_this
    if not (on_days and is_of_one_seed(differences)):
        title = "Paired differences over seeds" if on_days else "Paired differences"
        chance_note = "Runs of one seed share their jobs, constraints and machines. " + (
            DRAWN_ANEW if on_days == [] else CHOICES
        )
        yield section(title, comparisons_part(differences, "differences", chance_note))
    yield section("On days like this", comparisons_part(on_days or (), "on-days-like-this", WORKLOAD))


def _table_section(part: Section) -> Markup:
    rows_table = table(["architecture", *part.heads], map(TableRow, part.rows), text_columns=1 + part.words)
    return section(part.title, rows_table, *map(paragraph_note, part.notes))


def _pair_view(content: Content) -> Markup:
    """The densities are drawn by a script; without one the counts tell who delays which jobs less."""
    if not content.pairs:
        return EMPTY

    def rows() -> Iterator[TableRow]:
        for compared in content.pairs:
            names = [content.labels[compared.a], content.labels[compared.b]]
            counts = [
                compared.jobs,
                compared.a_lower,
                compared.b_lower,
                compared.jobs - compared.a_lower - compared.b_lower,
            ]
            yield TableRow([*names, *(f"{count:,}" for count in counts)])

    counts = folded(f"{len(content.pairs)} pairs in numbers", table(PAIRS, rows(), text_columns=2, names={1}))
    return joined((paragraph("The same job under two architectures, seed by seed."), mount("pairs"), counts))


def _why_view(content: Content) -> Markup:
    if not content.why:
        return EMPTY
    runs_told = ", ".join(f"{shortened(run.label)} (seed {run.seed})" for run in content.why)
    words = f"Runs that explain their decisions: {runs_told}. On the command line: volery why JOB/TASK --in DIR."
    return joined((paragraph(words), mount("why")))


def paragraph_note(text: str) -> Markup:
    """A remark below a table."""
    return paragraph(text, "note")


def _verdict(results: StoredResults) -> Markup:
    differences = results.summary.differences
    on_days = results.summary.on_days_like_this
    ranked = list(best.sentences(best.best(group_runs(results.summary.runs), confidence_of(differences))))
    has_many_pairs = len({(d.a, d.b) for d in differences}) > PAIRS_TOLD_WHOLE

    by_job = headline(on_days or (), ("mean delay", "p99 delay"))
    # Of many pairs the ranking says more than a sentence on each.
    sentences = (
        ranked if has_many_pairs and ranked else [] if by_job and is_of_one_seed(differences) else headline(differences)
    )

    beyond = max(len(sentences), len(by_job)) - SENTENCES_MAX
    # The limit holds for each of the two kinds of sentences, so that one does not crowd out the other.
    sentences = [*sentences[:SENTENCES_MAX], *by_job[:SENTENCES_MAX]]
    if not sentences:
        sentences = ["Nothing was compared: the results hold one architecture per setting."]

    warning = caution(differences, on_days)
    sentences = [*warnings(group_runs(results.summary.runs)), *sentences]
    more_note = "More such sentences: see the tables below." if beyond > 0 else ""
    drawn = end_sentence(results.manifest.stopping) if results.manifest.stopping else ""

    remarks = (paragraph_note(note) for note in (more_note, drawn, warning) if note)
    return tag("div", *map(paragraph, sentences), *remarks, class_="verdict")


def _what_was_run(manifest: ShownManifest, groups: Sequence[RunGroup]) -> Markup:
    runs = [run for group in groups for run in group.runs]
    cutoffs = sorted({run.cutoff_s for run in runs if run.cutoff_s is not None})

    trace, cluster = manifest.trace, manifest.cluster
    machines = f", constraints {cluster['constraints']}" if cluster.get("constraints") not in (None, "none") else ""
    machines += f", machines from {cluster['machines']}" if cluster.get("machines") else ""
    size = f"{trace.jobs:,} jobs, {trace.tasks:,} tasks" if trace else ""
    traces = sorted({run.trace for run in runs if run.trace})

    unfinished = manifest.planned - len(runs)
    known_facts = (
        ("Architectures", "; ".join(dict.fromkeys(shortened(bare_label(group.runs[0])) for group in groups))),
        (
            "Traces" if len(traces) > 1 else "Trace",
            ", ".join(traces) + (f" ({size})" if size and len(traces) == 1 else ""),
        ),
        ("Cluster", " or ".join(_clusters(runs)) + machines),
        ("Cutoff", " or ".join(f"jobs of at most {duration(c)} mean task duration are short" for c in cutoffs)),
        ("Settings", _settings(manifest.config)),
        ("Seeds", ", ".join(map(str, manifest.seeds))),
        ("When to stop", end_rule(manifest.stopping) if manifest.stopping else ""),
        ("Runs", f"{len(runs)} finished" + (f", {unfinished} of {manifest.planned} missing" if unfinished > 0 else "")),
        ("Python", manifest.python),
    )

    command = code(manifest.command) if manifest.command else None
    return joined((command, facts(*((name, value) for name, value in known_facts if value))))


def _settings(config: Mapping[str, Any]) -> str:
    """The settings of a study beside traces and cluster, with every value of their axes."""
    axes = {**(config.get("axes") or {}), **(config.get("parameters") or {})}
    shown_axes = [(name, list(map(str, values))) for name, values in axes.items() if name not in TOLD_APART]
    lists = (
        f"{name} {', '.join(map(shortened, values))}" for name, values in shown_axes if (name, len(values)) != ONE_MODEL
    )
    return "; ".join(lists)


def _clusters(runs: Sequence[RunSummary]) -> list[str]:
    sizes = dict.fromkeys((run.workers, run.slots) for run in runs)
    return [f"{workers:,} workers" + (f" with {slots:,} slots" if slots != workers else "") for workers, slots in sizes]


def _delay_table(groups: Sequence[RunGroup]) -> Markup:
    def rows() -> Iterator[TableRow]:
        for group in groups:
            for jobs in group.classes():
                delay = group.delay_s(jobs)
                delays = [duration(getattr(delay, name)) if delay else NOTHING for name in STATISTICS.values()]
                delays.insert(MEAN_PLACE + 1, plus_minus(group.half_width_s(jobs)))

                count = f"{sum(m.delay_s.count for m in group.members(jobs)) / len(group.runs):,.0f}"
                first = jobs == "all"
                yield TableRow([group.label if first else "", jobs, count, *delays], "first" if first else "part")

    names = [*STATISTICS]
    names.insert(MEAN_PLACE + 1, "\u00b1 mean")
    return table(["architecture", "class", "jobs", *names], rows(), text_columns=2)


def _figures(pictures: Iterable[CaptionedPicture]) -> Iterator[Markup]:
    for picture in pictures:
        yield figure(picture.svg, picture.name, picture.caption)


def _beyond(groups: Sequence[RunGroup]) -> Markup:
    shown = {group.label for _, members in settings(groups) for group in members}
    hidden = len({group.label for group in groups} - shown)
    return paragraph_note(f"No picture for {hidden} more rows of the table.") if hidden else EMPTY


def _best_table(groups: Sequence[RunGroup], confidence: float) -> Markup:
    ranking = best.best(groups, confidence)
    if not ranking:
        return EMPTY
    several = len({ranked.setting for ranked in ranking}) > 1

    def rows() -> Iterator[TableRow]:
        kind_before = None
        for ranked in ranking:
            first = (ranked.setting, ranked.jobs) != kind_before
            kind_before = (ranked.setting, ranked.jobs)

            lowest, next_lowest = ranked.amounts
            level, following = (", ".join(labels) or NOTHING for labels in (ranked.level, ranked.next))
            kind_note = f"{ranked.jobs}, {ranked.setting}" if several else ranked.jobs
            yield TableRow(
                [kind_note if first else "", ranked.quantity, ranked.label, lowest, level, following, next_lowest],
                "first" * first,
            )

    return joined((paragraph(best.told(groups)), table(BEST, rows(), text_columns=2, names={2, 4, 5})))


def _slowdown_table(groups: Sequence[RunGroup]) -> Markup:
    def rows() -> Iterator[TableRow]:
        for group in groups:
            for jobs in group.classes():
                first = jobs == "all"
                row = [group.label if first else "", jobs, *cells(SLOWDOWN, group.members(jobs))]
                yield TableRow(row, "first" if first else "part")

    definition = paragraph(
        "A percentile of job response times over the same percentile of ideal ones, taken separately (Pigeon's "
        "definition); per job: percentiles of each job's own ratio."
    )
    return joined((definition, table(["architecture", "class", *heads(SLOWDOWN)], rows(), text_columns=2)))


def _cost_table(groups: Sequence[RunGroup]) -> Markup:
    rows = [TableRow([group.label, *cells(COSTS, group.runs)]) for group in groups]
    return table(["architecture", *heads(COSTS)], rows)


def _timeline_figures(results: StoredResults) -> Iterator[Markup]:
    """A picture of the first seed of each architecture and setting, as many as a page bears."""
    first = {kept_timeline.label: kept_timeline for kept_timeline in reversed(results.timelines)}
    shown = [kept_timeline for kept_timeline in results.timelines if first[kept_timeline.label] is kept_timeline]
    for place, kept_timeline in enumerate(shown[:TIMELINES_MAX]):
        timeline = read_timeline(results.path, kept_timeline)

        killed = timeline.is_small and bool(timeline.columns["killed"].any())
        description = (
            "every task run is a bar in the colour of its job; nine colours return"
            + ("; dashed frames were killed" if killed else "")
            if timeline.is_small
            else "how busy the machines were; the deeper the colour, the busier"
        )
        yield figure(
            gantt.picture(timeline),
            f"timeline-{place}",
            f"{shortened(timeline.label)}, seed {timeline.seed}: {description}.",
        )

    if results.timelines:
        hidden_runs = len(results.timelines) - min(len(shown), TIMELINES_MAX)
        more_note = (
            f"{hidden_runs} more runs, in this folder: volery timeline . --run NAME --seed N -o FILE.svg. "
            if hidden_runs
            else ""
        )
        yield paragraph_note(f"{more_note}To see a run played, in this folder: volery watch . --run NAME --seed N")


def _allocation_table(groups: Sequence[RunGroup]) -> Markup:
    definition = "From the arrival of a task to its start, over all tasks that started; the parts are means."
    rows = [TableRow([group.label, *cells(ALLOCATION, [run.allocation_s for run in group.runs])]) for group in groups]
    return joined((paragraph(definition), table(["architecture", *heads(ALLOCATION)], rows)))


def _stage_figures(results: StoredResults) -> Iterator[Markup]:
    """A picture per setting, of as many settings as a page bears."""
    settings: dict[str, list[StageProfile]] = {}
    for profile in results.profiles:
        settings.setdefault(setting_of(profile.label), []).append(profile)
    for place, (setting, profiles) in enumerate(list(settings.items())[:FIGURES_MAX]):
        picture = stage_times(profiles)
        if picture:
            caption = "CPU time in the methods that realise stages" + (f", {shortened(setting)}" if setting else "")
            yield figure(picture, f"stages-{place}", f"{caption}. {STAGE_CAPTION}")


def _counter_table(groups: Sequence[RunGroup]) -> Markup:
    names = sorted({name for group in groups for run in group.runs for name in run.counters})

    if not names:
        return EMPTY

    def cell(group: RunGroup, name: str) -> str:
        values = [run.counters[name] for run in group.runs if name in run.counters]
        return digits(mean(values)) if values else NOTHING

    rows = [TableRow([name.replace("_", " "), *(cell(group, name) for group in groups)]) for name in names]
    every = table(["counter", *(group.label for group in groups)], rows)
    return joined((paragraph("Means over seeds."), folded(f"All {len(names)} counters", every)))


def _load_figures(results: StoredResults) -> Iterator[Markup]:
    if results.loads:
        yield paragraph(
            "What the workload asks for before any scheduler has a say: slots that active tasks with a constraint need "
            "/ slots that have it, per second, tasks taken to start on arrival."
        )
    yield from _figures(load_pictures(results))


def _conflict_table(conflicts: Sequence[ConflictTable]) -> Markup:
    """Conflicts per second in numbers."""
    if not conflicts:
        return EMPTY

    def rows() -> Iterator[TableRow]:
        for conflict_table in conflicts:
            for kind in KINDS:
                first = kind == KINDS[0]
                yield TableRow(
                    [conflict_table.title if first else "", kind, *map(digits, conflict_table.over[kind])],
                    "first" * first,
                )

    return joined((paragraph(CONFLICTS_NOTE), table(CONFLICTS, rows(), text_columns=2)))


def _conflicts(results: StoredResults, content: Content) -> Iterator[Markup]:
    yield _conflict_table(results.conflicts)
    yield mount("conflicts")
    yield still("conflicts", *(() if content.serves else _figures(conflict_pictures(results))))


def _flow_figures(results: StoredResults) -> Iterator[Markup]:
    """A picture per flow; architectures that differ in parameters alone may share it."""
    labels: dict[Flow, list[str]] = {}
    for labelled in results.flows:
        labels.setdefault(labelled.flow, []).append(labelled.label)

    if labels:
        yield paragraph(flowplot.CAPTION)

    for place, (flow, members) in enumerate(list(labels.items())[:FIGURES_MAX]):
        named = ", ".join(map(shortened, dict.fromkeys(members)))
        yield figure(flowplot.flow_svg(flow, alone=False), f"flow-{place}", f"Messages of {named}")


def _verify(results: StoredResults) -> Markup:
    manifest = results.manifest
    lines = [TableRow([line.label or line.architecture, str(line.seed), line.digest]) for line in manifest.runs]
    return joined(
        (
            paragraph(
                "In this folder, the command below runs everything again and compares every number of every file, "
                "and the digests (SHA-256 over submit, start, finish, worker and attempt of every task and the "
                "answer to every job):"
            ),
            code("volery verify ."),
            facts(("Trace SHA-256", manifest.trace.sha256)) if manifest.trace else None,
            folded(f"Digests of {len(lines)} runs", table(["run", "seed", "digest"], lines, text_columns=3)),
        )
    )
