"""Jobs and tasks as words of a command name them: by number, range, tasks of a job or name, narrowed by options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, get_args

import typer

from volery.cli.options import argument, option
from volery.cli.output import print_error
from volery.core.errors import InputError, suggestion

if TYPE_CHECKING:
    from volery.live.client import Client
    from volery.live.status import JobStatus, TaskStatus

PAGE: Final = 1_000
OPEN_STATES: Final = ("pending", "running")
FORMS: Final = "jobs are written 14, 12-15, 14/3 or 14/3-7,9, or as the name of jobs of your own"
_SPANS: Final = r"[0-9]{1,18}(?:-[0-9]{1,18})?(?:,[0-9]{1,18}(?:-[0-9]{1,18})?)*"
_NUMBERS: Final = re.compile(rf"({_SPANS})|([0-9]{{1,18}})/({_SPANS})")
_NAMED_TASKS: Final = re.compile(rf"(.+)/({_SPANS})", re.DOTALL)

JobWords = Annotated[
    list[str] | None, argument("Jobs: 12, 12-15, tasks of one as 12/3-7,9, or names of your jobs.", "[JOB[/TASKS]]...")
]
JobsState = Annotated[str | None, option("Only jobs in this state.", "--state", form="STATE")]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own jobs; without JOB no others are meant.")]
Last = Annotated[bool, typer.Option("--last", help="Only the newest of them.")]


class JobFilters(NamedTuple):
    """Options that narrow jobs; those that are None or false do not matter.

    Args:
        state: state of the jobs.
        mine: only jobs of the user who asks.
        last: only the newest.
        user: user of the jobs.
        reason: text that the reason contains.
        since_us: earliest submission, microseconds since 1970.
    """

    state: str | None = None
    mine: bool = False
    last: bool = False
    user: str | None = None
    reason: str | None = None
    since_us: int | None = None

    @property
    def narrows(self) -> bool:
        """True if jobs may be left out for what they are."""
        return self._replace(last=False) != JobFilters()


class JobSelection(NamedTuple):
    """A job, or tasks of it; without spans of places it is the whole job."""

    job: JobStatus
    spans: tuple[range, ...] | None = None

    @property
    def task_count(self) -> int:
        """The number of its tasks."""
        return self.job.tasks if self.spans is None else sum(map(len, self.spans))

    def tasks(self, client: Client, first: int = 0) -> Iterator[TaskStatus]:
        """Its tasks, in order, without those before a place."""
        for span in (range(self.job.tasks),) if self.spans is None else self.spans:
            places = span[max(0, first - span.start) :]
            yield from client.tasks(self.job.id, places.start, len(places))

    def failed_tasks(self, client: Client) -> Iterator[TaskStatus]:
        """Its tasks that ran without success, or never can, in order."""
        from volery.live.status import FAILED_TASKS

        return (task for task in self.tasks(client) if task.state in FAILED_TASKS)


def check_state(state: str | None) -> None:
    """Refuse a state that no job is ever in.

    Raises:
        InputError: it is one.
    """
    from volery.live.status import JobState

    if state is not None and state not in get_args(JobState):
        raise InputError("--state", f"no job is ever {state!r}{suggestion(state, get_args(JobState))}")


def is_single(words: Sequence[str] | None) -> bool:
    """True for one job, or one task, that is named by its number alone."""
    return words is not None and len(words) == 1 and re.fullmatch(r"[0-9]+(/[0-9]+)?", words[0]) is not None


def listed_jobs(
    client: Client,
    filters: JobFilters,
    states: Sequence[str | None],
    span: range | None = None,
    name: str | None = None,
) -> Iterator[JobStatus]:
    """Jobs in some states, page by page, the newest of each state first.

    Args:
        states: states of the jobs; None stands for any.
        span: numbers of the jobs; None: any.
        name: exact name of the jobs; None: any.
    """
    for state in states:
        before = None if span is None else span.stop
        limit = PAGE if span is None else min(PAGE, len(span))
        while True:
            page = client.jobs(
                state, filters.user, before, limit, filters.reason, filters.since_us, name=name, mine=filters.mine
            )
            yield from (job for job in page if name in (None, job.name) and (span is None or job.id in span))

            if len(page) < limit or (span is not None and page[-1].id <= span.start):
                break
            # The newest come first: the next page begins below the last of this one.
            before = page[-1].id


def selected(
    client: Client, words: Sequence[str] | None, filters: JobFilters, as_json: bool, *, is_open: bool = False
) -> list[JobSelection]:
    """The jobs that words name, narrowed by options, in the order of their words, each once.

    Args:
        words: words of a command; without any, the user's own jobs are meant.
        is_open: true: names, ranges and options mean only jobs that have not ended.

    Raises:
        InputError: a word names nothing, or neither a word nor an option is given.
        typer.Exit: with status 1 where the options leave no job.
    """
    check_state(filters.state)
    if not words and filters == JobFilters():
        raise InputError("JOB", f"is missing; {FORMS}, or chosen among your own by --mine, --state or --last")

    choice = _Choice(client, filters, OPEN_STATES if is_open and filters.state is None else (filters.state,))
    selections = dict[int, JobSelection]()
    for selection in _own(choice) if not words else (item for word in words for item in choice.named(word)):
        earlier = selections.get(selection.job.id, selection)
        spans = None if None in (earlier.spans, selection.spans) else (*(earlier.spans or ()), *(selection.spans or ()))
        selections[selection.job.id] = JobSelection(selection.job, _joined(spans))

    if not selections:
        options = [f"--{name} {value}" for name in ("state", "user", "reason") if (value := getattr(filters, name))]
        options += ["--since"] if filters.since_us is not None else []
        options += ["--mine"] if filters.mine and words else []
        options += ["being under way"] if is_open and filters.state is None else []
        fit = f"none of {'these' if words else 'your own'} fits {' and '.join(options)}" if options else "you have none"
        print_error("jobs", fit, as_json)
        raise typer.Exit(1)

    return [selections[max(selections)]] if filters.last else list(selections.values())


def whole_jobs(selections: Sequence[JobSelection], remedy: str) -> list[JobStatus]:
    """The jobs themselves, where no tasks of them are named.

    Args:
        remedy: end of the error's sentence, in which JOB stands for the number of a job.

    Raises:
        InputError: tasks are named.
    """
    for selection in selections:
        if selection.spans is not None:
            place = f"{selection.job.id}/{selection.spans[0].start}"
            raise InputError("JOB", f"{place} names a task; {remedy.replace('JOB', str(selection.job.id))}")
    return [selection.job for selection in selections]


class _Choice(NamedTuple):
    client: Client
    filters: JobFilters
    states: Sequence[str | None]

    def named(self, word: str) -> Iterator[JobSelection]:
        """The jobs that a word names, the oldest first."""
        numbers = _NUMBERS.fullmatch(word)
        if numbers is None:
            yield from self._by_name(word)
            return

        job_text, number_text, places_text = numbers.groups()
        for span in _spans(job_text or number_text):
            for job in self._numbered(span):
                yield JobSelection(job) if places_text is None else _tasks_of(job, places_text)

    def _numbered(self, span: range) -> list[JobStatus]:
        if len(span) == 1 and not self.filters.narrows:
            return [self.client.job(span.start)]

        jobs = self._listed(span=span)
        if not jobs and len(span) == 1:
            self.client.job(span.start)  # which raises where there is none
        elif not jobs and not any(True for _ in listed_jobs(self.client, JobFilters(), (None,), span)):
            raise InputError("JOB", f"no job has a number from {span[0]} to {span[-1]}; `volery jobs` lists them")
        return jobs

    def _by_name(self, word: str) -> Iterator[JobSelection]:
        own = self._replace(filters=self.filters._replace(mine=True))
        names = [(word, None)] + [(parts[1], parts[2]) for parts in [_NAMED_TASKS.fullmatch(word)] if parts]
        for name, places_text in names:
            if jobs := own._listed(name=name):
                yield from (JobSelection(job) if places_text is None else _tasks_of(job, places_text) for job in jobs)
                return
            if any(True for _ in listed_jobs(self.client, JobFilters(mine=True), (None,), name=name)):
                return
        raise InputError("JOB", f"{word[:40]!r} is none: {FORMS}; `volery jobs --mine` lists them")

    def _listed(self, span: range | None = None, name: str | None = None) -> list[JobStatus]:
        jobs = listed_jobs(self.client, self.filters, self.states, span, name)
        return sorted(jobs, key=lambda job: job.id)


def _own(choice: _Choice) -> Iterator[JobSelection]:
    """The user's own jobs, the oldest first; of the newest alone no second page is read."""
    filters = choice.filters._replace(mine=True)
    limit = 1 if filters.last else None
    jobs = (job for state in choice.states for job in islice(listed_jobs(choice.client, filters, (state,)), limit))
    return map(JobSelection, sorted(jobs, key=lambda job: job.id))


def _tasks_of(job: JobStatus, text: str) -> JobSelection:
    spans = _spans(text)
    if (last := max(span[-1] for span in spans)) >= job.tasks:
        raise InputError("JOB", f"{job.id}/{last} is none of its tasks; job {job.id} has tasks 0 to {job.tasks - 1}")
    return JobSelection(job, tuple(spans))


def _spans(text: str) -> list[range]:
    """Numbers and ranges, as 3-7,9."""
    spans = list[range]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        spans.append(range(int(first), int(last or first) + 1))
        if not spans[-1]:
            raise InputError("JOB", f"{part} runs backwards; write {last}-{first}")
    return spans


def _joined(spans: Sequence[range] | None) -> tuple[range, ...] | None:
    """Spans in order, without places that are in two of them."""
    if spans is None:
        return None
    joined_spans = list[range]()
    for span in sorted(spans, key=lambda span: span.start):
        if joined_spans and span.start <= joined_spans[-1].stop:
            joined_spans[-1] = range(joined_spans[-1].start, max(joined_spans[-1].stop, span.stop))
        else:
            joined_spans.append(span)
    return tuple(joined_spans)
