"""A results folder as a site: a small HTTP server of the report's page, and of answers to it.

The folder is read in a thread, while the server answers already; and once more when its files have changed. A page
names the edition that it was made of with each request, so that two states are never mixed. The server only reads. It
answers to the names that it was given alone, so that no other site's page can reach it through a browser (DNS
rebinding), and its pages may run their own script and ask their own server, nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import socket
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.look.html import EMPTY, Markup, paragraph, tag
from volery.report.explore.content import RunExplanation, TaskExplanation, explored, policy, script
from volery.report.explore.delays import DelayGrid, Pair, RankedJobs, pair, rows_at
from volery.report.folder import glance, read_results, tables
from volery.report.groups import CLASSES, JobClass
from volery.report.html import render
from volery.report.page import page
from volery.report.parquet import read_jobs

LOCAL_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
QUERY_MAX: Final = 10_000
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class Page(NamedTuple):
    """HTML with its status and its content security policy."""

    status: HTTPStatus
    body: bytes
    policy: str


class Site(msgspec.Struct, frozen=True, eq=False):
    """The pages and answers that a server sends.

    Args:
        page: gives what / shows now.
        answer: tells what a path (without its stroke) asks, given its query.
        names: host names that requests may be addressed to.
    """

    page: Callable[[], Page]
    answer: Callable[[str, dict[str, str]], Any]
    names: Sequence[str] = LOCAL_NAMES


def open_server(site: Site, host: str, port: int) -> ThreadingHTTPServer:
    """A server that listens; `serve_forever` serves, `server_close` ends it.

    Raises:
        InputError: when it cannot listen there.
    """
    # `http.server` makes a handler per request and hands it no argument: the site comes by the class.
    handler = type("Handler", (_Handler,), {"site": site})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except (OSError, OverflowError) as error:
        place = f"{host}:{port}"
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(place, f"cannot listen there ({reason}); give another --port or --host") from None
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "volery", ""
    timeout = 60

    def do_GET(self) -> None:
        if self._is_foreign():
            self._refuse(HTTPStatus.FORBIDDEN, "host", f"this server answers to {', '.join(self.site.names)} alone")
            return

        url = urlsplit(self.path)
        if url.path == "/":
            page = self.site.page()
            self._send(page.status, page.body, "text/html; charset=utf-8", page.policy)
        elif len(url.query) > QUERY_MAX:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, url.path, f"a query has at most {QUERY_MAX:,} letters")
        else:
            self._tell(url.path.removeprefix("/"), dict(parse_qsl(url.query)))

    do_HEAD = do_GET  # noqa: N815 (http.server calls it so)

    def _tell(self, question: str, query: dict[str, str]) -> None:
        try:
            answer = self.site.answer(question, query)
        except InputError as error:
            missing = error.place.startswith("/")
            self._refuse(HTTPStatus.NOT_FOUND if missing else HTTPStatus.BAD_REQUEST, error.place, error.problem)
            return
        self._send(HTTPStatus.OK, msgspec.json.encode(answer), "application/json")

    def _is_foreign(self) -> bool:
        host = self.headers.get("Host", "")
        # The port counts for nothing; an IPv6 address in brackets has colons of its own.
        name = host if host.endswith("]") else host.rpartition(":")[0] if ":" in host else host
        return "*" not in self.site.names and name.lower() not in self.site.names

    def _refuse(self, status: HTTPStatus, place: str, problem: str) -> None:
        self._send(status, msgspec.json.encode({"place": place, "problem": problem}), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, policy: str = "default-src 'none'") -> None:
        self.send_response(status)
        headers = HEADERS | {"Content-Security-Policy": policy, "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server
        """Nothing: the terminal belongs to whoever started the server."""


def url_of(server: ThreadingHTTPServer) -> str:
    """The address of a server for a browser."""
    host, port = server.server_address[:2]
    name = f"[{host!s}]" if server.address_family == socket.AF_INET6 else str(host)
    return f"http://{name}:{port}/"


COUNT_MAX: Final = 500
PAIRS_KEPT: Final = 1000
Why = Callable[[int, str], Sequence[TaskExplanation]]
Query = Mapping[str, str]


class Answers:
    """Answers questions about one results folder from its jobs by rank.

    Args:
        explaining: the number of runs that explain themselves.
        explain_waits: tells of a run, by its number among those that explain themselves, a job or a task.
    """

    def __init__(self, grid: DelayGrid, ranked: Sequence[RankedJobs], explaining: int, explain_waits: Why) -> None:
        self._grid, self._ranked, self._explaining, self._why = grid, ranked, explaining, explain_waits
        self._compared = functools.lru_cache(maxsize=PAIRS_KEPT)(self._compare)

    def answer(self, question: str, query: Query) -> Any:
        """The answer to a question, ready to be encoded.

        Raises:
            InputError: what is asked is not there, or the query is wrong.
        """
        answers: dict[str, Callable[[Query], Any]] = {"jobs": self._jobs, "pair": self._pair, "why": self._task}
        if question not in answers:
            raise InputError(f"/{question}", f"there is no such page; these are here: /, /{', /'.join(answers)}")
        return answers[question](query)

    def _jobs(self, query: Query) -> dict[str, Any]:
        """Jobs of several labels, each in its range of bins, the most delayed first."""
        labels = [self._label(label) for label in _numbers(query, "labels")]
        lower, upper = _numbers(query, "from"), _numbers(query, "to")
        if not len(labels) == len(lower) == len(upper):
            raise InputError("from", "give one bin in from and one in to for each of the labels")

        jobs = _job_class(query.get("class", "all"))
        first, count = _number(query, "first"), min(_number(query, "count"), COUNT_MAX)
        top = self._grid.bins
        ranges = []

        for label, low, high in zip(labels, lower, upper, strict=True):
            ranked_jobs = self._ranked[label]
            ranges.append(
                (label, ranked_jobs, *ranked_jobs.within(min(max(low, -1), top), min(max(high, -1), top), jobs))
            )

        total = sum(max(0, end - begin) for _, _, begin, end in ranges)
        spans = [(ranked_jobs, begin, max(begin, end)) for _, ranked_jobs, begin, end in ranges]

        rows: list[tuple[float, int, int]] = []
        for place, (begin, end) in enumerate(part(spans, first, count, jobs)):
            rows += [(-spans[place][0].delay_s(rank, jobs), place, rank) for rank in range(begin, end)]
        return {"total": total, "rows": [self._row(ranges[place][0], rank, jobs) for _, place, rank in sorted(rows)]}

    def _row(self, label: int, rank: int, jobs: JobClass) -> tuple[Any, ...]:
        row = rows_at(self._ranked[label], self._grid, [rank], jobs)
        return label, row.seed[0], row.job[0], row.tasks[0], row.submit_s[0], row.delay_s[0]

    def _pair(self, query: Query) -> Pair:
        return self._compared(self._label(_number(query, "a")), self._label(_number(query, "b")))

    def _compare(self, a: int, b: int) -> Pair:
        return pair(a, b, self._ranked[a], self._ranked[b], self._grid)

    def _task(self, query: Query) -> Sequence[TaskExplanation]:
        run = _number(query, "run")
        if run >= self._explaining:
            raise InputError("run", f"{self._explaining} runs explain themselves; there is no number {run}")
        return self._why(run, query.get("question", ""))

    def _label(self, number: int) -> int:
        if not 0 <= number < len(self._ranked):
            raise InputError("labels", f"there are {len(self._ranked)} labels; there is no number {number}")
        return number


Span = tuple[RankedJobs, int, int]
"""Ranks [first, last) of a label."""


def part(spans: Sequence[Span], first: int, count: int, jobs: JobClass = "all") -> list[tuple[int, int]]:
    """Span and rank of the jobs at the places [first, first + count) of all spans, merged by falling delay.

    Neither the length of the spans nor how far down the part begins matters: nothing is merged that is not in it.
    """
    begins, ends = _cut(spans, first, jobs), _cut(spans, first + count, jobs)
    return list(zip(begins, ends, strict=True))


def _cut(spans: Sequence[Span], at: int, jobs: JobClass) -> list[int]:
    """The rank in each span at which the first so many jobs of the merged spans end."""
    if at >= sum(last - first for _, first, last in spans):
        return [last for _, _, last in spans]

    near = [
        (of, first, min(last, first + at)) for of, first, last in spans
    ]  # no span is cut later than where it alone would give all jobs
    low, high = 0, max((_bits(of.delay_s(first, jobs)) for of, first, last in near if first < last), default=0)
    while low < high:  # halving the bits of a float is exact: it ends
        middle = (low + high) // 2
        if sum(_exceeding(span, _float(middle), jobs) - span[1] for span in near) <= at:
            high = middle
        else:
            low = middle + 1

    # Now `high` is the least delay that at most so many jobs exceed; jobs that are equal to it fill up the rest.
    cuts = [_exceeding(span, _float(high), jobs) for span in near]
    missing = at - sum(cut - first for cut, (_, first, _) in zip(cuts, near, strict=True))
    for place, (of, _, last) in enumerate(near):
        equal = _exceeding((of, cuts[place], last), _float(high - 1), jobs) - cuts[place]
        cuts[place] += min(missing, equal)
        missing -= min(missing, equal)
    return cuts


def _exceeding(span: Span, delay_s: float, jobs: JobClass) -> int:
    """The rank at which the jobs that are delayed longer end."""
    of, first, last = span
    return first + bisect_left(range(first, last), -delay_s, key=lambda rank: -of.delay_s(rank, jobs))


def _bits(value: float) -> int:
    """Floats of zero and more as integers in the same order (IEEE 754)."""
    return int(np.float64(value).view(np.int64))


def _float(bits: int) -> float:
    """The number with these bits; below zero for those below none."""
    return -1.0 if bits < 0 else float(np.int64(bits).view(np.float64))


def _job_class(name: str) -> JobClass:
    for jobs in CLASSES:
        if jobs == name:
            return jobs
    raise InputError("class", f"{name!r} is no class of jobs; give one of {', '.join(CLASSES)}")


def _numbers(query: Query, name: str) -> list[int]:
    try:
        return [int(number) for number in query.get(name, "").split(",") if number]
    except ValueError:
        raise InputError(name, "give whole numbers with commas between them") from None


def _number(query: Query, name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InputError(name, f"{text!r} is no whole number of zero or more")
    return int(text)


PATIENCE_S: Final = 1.0
"""The longest time for which a browser waits for the page before it is sent the progress."""
STILL: Final = "default-src 'none'; style-src 'unsafe-inline'"
AGAIN: Final = tag("meta", http_equiv="refresh", content=1)
Told = Callable[[str], None]


class WaitExplainer(Protocol):
    """Tells why the tasks of a folder's runs waited."""

    def longest(self) -> Sequence[RunExplanation]:
        """The tasks that waited longest, of each run that explains itself."""

    def answer(self, run: int, question: str) -> Sequence[TaskExplanation]:
        """A job or a task of one of these runs."""


class Edition(msgspec.Struct, frozen=True, eq=False):
    """One state of the folder, ready to be shown."""

    mark: str
    page: Page
    answers: Answers


class ResultsSite:
    """The report of a results folder as a site, with answers to its page.

    Args:
        explaining: makes the explainer of waits; called whenever the folder is read.
        report_progress: receives the progress, in words.
        failed: receives the error for which the folder could not be read the first time.
    """

    def __init__(
        self,
        folder: Path,
        explaining: Callable[[], WaitExplainer],
        report_progress: Told = lambda _: None,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._explaining = explaining
        self._report_progress = report_progress
        self._report_failure = failed

        self._lock = Lock()
        self._edition: Edition | None = None
        self._refusal: tuple[str, InputError] | None = None
        self._reading: Event | None = None
        self._progress_text = ""

    def begin(self) -> None:
        """Look whether the files are there, and begin to read them.

        Raises:
            InputError: naming the file that is missing or damaged, as far as that shows at a glance.
        """
        glance(self._folder)
        self._begin(mark_of(self._folder))

    def page(self) -> Page:
        """The page of the folder as it is now, or how far it is."""
        mark = mark_of(self._folder)
        with self._lock:
            stale = self._edition is None or self._edition.mark != mark
            refused = self._refusal[1] if self._refusal is not None and self._refusal[0] == mark else None
            under_way = self._reading

        if stale and under_way is None and refused is None:
            # The folder is read once for all who ask; a browser whose page is not ready soon gets the progress.
            under_way = self._begin(mark)

        if stale and under_way is not None:
            under_way.wait(PATIENCE_S)

        with self._lock:
            if self._edition is not None and self._edition.mark == mark:
                return self._edition.page
            refused = self._refusal[1] if self._refusal is not None and self._refusal[0] == mark else None

        if refused is not None:
            return _still(
                HTTPStatus.INTERNAL_SERVER_ERROR, "The folder cannot be read", f"{refused.place}: {refused.problem}"
            )
        return _still(HTTPStatus.ACCEPTED, "Getting ready", self._progress_text, AGAIN)

    def answer(self, question: str, query: Query) -> object:
        """The answer to a request of the page.

        Raises:
            InputError: the page is of another edition, or asks what is not there.
        """
        edition = self._edition

        if edition is None:
            raise InputError("page", f"it is being got ready: {self._progress_text}")

        if query.get("edition", edition.mark) != edition.mark:
            raise InputError("edition", "the folder has changed since this page was made; load the page again")

        return edition.answers.answer(question, query)

    def _begin(self, mark: str) -> Event:
        with self._lock:
            if self._reading is not None:
                return self._reading
            finish_event = self._reading = Event()

        Thread(target=self._prepare, args=(mark, finish_event), daemon=True).start()
        return finish_event

    def _prepare(self, mark: str, finish_event: Event) -> None:
        edition: Edition | None = None
        problem: Exception | None = None

        try:
            edition = prepared(self._folder, mark, self._explaining(), self._say)
        except InputError as error:
            problem = error
        except MemoryError:
            problem = InputError(str(self._folder), "is too large for the memory of this machine")
        except Exception as error:  # a thread has nobody else to tell
            problem = error

        with self._lock:
            first = self._edition is None
            if edition is not None:
                self._edition = edition
                self._refusal = None
            elif isinstance(problem, InputError):
                self._refusal = (mark, problem)
            self._reading = None

        finish_event.set()

        # A later error of input is shown by the page alone. The first one ends the command, and so does any defect.
        if problem is not None and (first or not isinstance(problem, InputError)):
            self._report_failure(problem)
        elif problem is None:
            self._report_progress("ready")

    def _say(self, text: str) -> None:
        self._progress_text = text
        self._report_progress(text)


def prepared(folder: Path, mark: str, explaining: WaitExplainer, report_progress: Told) -> Edition:
    """All that is shown of a folder and answered about it.

    Raises:
        InputError: when a file of the folder is missing or damaged.
    """

    def read(count: int, total: int) -> None:
        report_progress(f"{count:,} of {total:,} jobs are read")

    report_progress("reading")

    results = read_results(folder, read_jobs(folder, read))
    report_progress("reading why tasks waited")
    waits = explaining.longest()

    report_progress(f"ranking {sum(run.delay_s.size for run in results.jobs):,} jobs")
    explored_content = explored(results, waits, serves=True)
    content = msgspec.structs.replace(explored_content.content, edition=mark)
    report_progress("drawing the page")

    text = render(results, content).encode()
    report_progress("ready")
    answer: Why = explaining.answer

    answers = Answers(content.grid, explored_content.ranked, len(content.why), answer)
    return Edition(mark, Page(HTTPStatus.OK, text, policy(script(), serves=True)), answers)


def mark_of(folder: Path) -> str:
    """Tells states of a folder apart: its tables are replaced, never changed, when a study goes on."""
    digest = hashlib.sha256()

    for path in tables(folder):
        try:
            status = path.stat()
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
        except OSError:
            digest.update(f"{path.name} is not there\n".encode())
    return digest.hexdigest()[:16]


def _still(status: HTTPStatus, title: str, text: str, head: Markup = EMPTY) -> Page:
    return Page(status, page(title, "Volery", [paragraph(text)], head=head).encode(), STILL)
