"""Frontend of users: the job service, the API with its pages, forecasts and the archive, each handed what it needs."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from volery.core.errors import InputError, install_command
from volery.core.model import Address
from volery.live.clock import in_background, unix_now_us
from volery.live.config.federation import Federation
from volery.live.config.tls import server_files
from volery.live.dashboard.routes import dashboard_routes
from volery.live.runtime.submitter import Frontend, SubmitterSite
from volery.live.service.api import ApiServer, demand_safe
from volery.live.service.archive import Archive
from volery.live.service.authentication import Authenticator, TaskTokens, TokenFile
from volery.live.service.forecaster import Forecaster
from volery.live.service.http_server import ConnectionLimits
from volery.live.service.job_service import KEPT_REPORTS_LATE_S, REPORTS_LATE_S, job_service
from volery.live.service.marks import SUFFIX, MarkKeeper, StoreMark, decode_marks, demand_newest, read_mark
from volery.live.service.rows import reading
from volery.live.service.store import JobStore

if TYPE_CHECKING:
    from volery.live.service.telemetry import JobTracer


STORE: Final = "jobs.sqlite"

log = logging.getLogger(__name__)


class JobFrontend(Frontend):
    """The job service with its API.

    Raises:
        InputError: the store or the API's address cannot be had.
    """

    def __init__(self, site: SubmitterSite) -> None:
        federation, deployment = site.federation, site.deployment
        folder, file = federation.folder, federation.file
        self._site = site
        self._path = folder / STORE
        self._store = store = opened_store(self._path, self._kept_marks(), site.gives_up_jobs)

        transport = site.transport
        keeper = MarkKeeper(self._path, store.mark, transport.announce if transport is not None else _no_hosts)

        self._tracer = job_tracer(federation, store) if file.telemetry else None
        gate = Authenticator(TokenFile(folder), TaskTokens(folder, store.open_user) if file.task_tokens else None)

        self._service = service = job_service(
            store,
            federation.fleet,
            deployment,
            site.send,
            KEPT_REPORTS_LATE_S if file.reports else REPORTS_LATE_S,
            site.agents,
            site.register,
            self._tracer.on_report if self._tracer is not None else None,
            keeper.note,
            gate.task_token,
        )

        self._keeper = keeper
        super().__init__(service.component, service.queries.table.register)
        self._elsewhere = site.elsewhere

        written = service.writer.written
        self._archive = Archive(store, written, self._path, folder / "archive", file.retention)

        limits = ConnectionLimits(file.api_connections, file.api_connections_per_address)
        nodes = dict(deployment.machines)
        self._forecaster = Forecaster(federation, nodes, service.queries.lost, service.unanswering)

        self._server = ApiServer(
            service,
            folder / "tasks",
            *federation.api,
            gate=gate,
            tls=_files(federation),
            foreteller=self._forecaster,
            bounds=limits,
            pages=dashboard_routes,
        )

        self.url, self.open_to_all = self._server.url, self._server.open_to_all

    def _kept_marks(self) -> dict[str, StoreMark]:
        """The marks of the store that are kept beside it, and by hosts that have answered so far."""
        transport = self._site.transport
        mark = read_mark(self._path.with_suffix(SUFFIX))
        marks = {} if mark is None else {self._path.with_suffix(SUFFIX).name: mark}
        return marks | (decode_marks(transport.kept_marks) if transport is not None else {})

    async def open(self) -> None:
        """Serve users.

        Raises:
            InputError: a host that was met after the store was opened has the mark of a newer one.
        """
        # Once more: hosts that were met since the store was opened may keep a newer mark than its own.
        demand_newest(self._path, self._store.mark(self._store.revision), self._kept_marks())
        self._store.sync()
        self._keeper.note(self._store.revision)

        await self._service.open(self._elsewhere)
        if self._tracer is not None:
            self._tracer.open(self._service.queries)

        await self._server.start()
        self._archive.start()

    def restarted(self, addresses: Collection[Address]) -> None:
        """Submit jobs again to schedulers that may have lost them."""
        in_background(self._service.resubmit(addresses), f"the resubmission to {', '.join(addresses)}")

    async def close(self) -> None:
        # The tracer reads the store until the service closes it, and sends its last spans after that.
        await self._archive.close()
        if self._tracer is not None:
            self._tracer.stop()
        await self._service.close()
        if self._tracer is not None:
            await self._tracer.close()
        await self._server.close()
        self._forecaster.close()


def opened_store(path: Path, marks: Mapping[str, StoreMark], gives_up_jobs: bool) -> JobStore:
    """Open the store of jobs, which is to be as new as the marks that are kept of it.

    Args:
        gives_up_jobs: if it is older, go on without the jobs and the ends of tasks that it lacks.

    Raises:
        InputError: it is older or missing, cannot be opened, or is damaged.
    """
    if not (gives_up_jobs or _holds_jobs(path)):
        demand_newest(path, None, marks)  # nothing is written then: a log that comes back still fits its file

    store = JobStore(path)
    try:
        demand_newest(path, store.mark(store.revision), marks)
    except InputError as error:
        if not gives_up_jobs:
            store.close()
            raise
        log.warning("%s: jobs that are not in it, and ends of tasks since, are given up (%s)", path, error.problem)
        store.continue_from(marks.values(), unix_now_us())

    return store


def _holds_jobs(path: Path) -> bool:
    """True if there is a store, or something that `JobStore` refuses with the reason."""
    if not path.is_file():
        return path.exists()
    try:
        with closing(reading(path)) as sql:
            return bool(sql.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return True


def _no_hosts(_: bytes) -> None: ...


def demand_safe_api(federation: Federation) -> None:
    """Refuse an API that would be open to strangers, or tokens that they could overhear.

    Raises:
        InputError: it would.
    """
    demand_safe(federation.api[0], Authenticator(TokenFile(federation.folder)), _files(federation))


def _files(federation: Federation) -> dict[str, str] | None:
    tls = federation.file.tls
    return server_files(tls, federation.base) if tls is not None else None


def job_tracer(federation: Federation, store: JobStore) -> JobTracer:
    """The tracer of a federation that has an OpenTelemetry collector.

    Raises:
        InputError: OpenTelemetry is not installed.
    """
    endpoint = federation.file.telemetry
    if not endpoint.startswith(("http://", "https://")):
        raise InputError("telemetry", f"{endpoint!r} is no address of a collector; write it as http://127.0.0.1:4318")
    try:
        from volery.live.service import telemetry
    except ImportError as error:
        raise InputError("telemetry", f"{error.name} is not installed; {install_command('otel')} installs it") from None
    return telemetry.JobTracer(federation.file.name, store, *telemetry.exporters(endpoint.rstrip("/")))
