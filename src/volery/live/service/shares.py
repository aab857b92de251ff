"""What the API offers about shares: who is due what, other weights, and who has lost what to whom."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from volery.core.errors import InputError
from volery.live.service.admission import NotThereError, as_json, number, principal, seen_job
from volery.live.service.openapi import Operation
from volery.live.service.queries import JobQueries
from volery.live.status import PreemptionStatus, ShareStatus, Weight, WeightChange

WEIGHT_BYTES_MAX: Final = 1024
LIMIT_MAX: Final = 10_000


def sharing_operations(queries: JobQueries) -> tuple[Operation, ...]:
    """Shares, their changes, preemptions."""

    async def shares(request: Request) -> Response:
        """Who is due what of the federation, as a tree; who is no operator hears of the own share."""
        return as_json(queries.sharing.listed(principal(request).sees))

    async def show_share(request: Request) -> Response:
        """The share of a user, or of an organisation."""
        name = request.path_params["name"]
        found = queries.sharing.found(name, principal(request).sees)
        if found is None:
            raise NotThereError(f"shares/{name[:80]}", "nobody of that name has a share; `volery users` lists them")
        return as_json(found)

    async def reweigh(request: Request) -> Response:
        """Give a user, or an organisation, another weight; others lose running tasks only beyond what they are due."""
        body = bytearray()
        async for block in request.stream():
            body += block
            if len(body) > WEIGHT_BYTES_MAX:
                raise InputError("body", "is too long; it is one weight")
        try:
            asked = msgspec.json.decode(body, type=Weight)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InputError("body", f'is not {{"weight": 3}}: {error}') from None
        return as_json(
            await queries.sharing.reweigh(request.path_params["name"], asked.weight, principal(request).user)
        )

    async def changes(request: Request) -> Response:
        """Who has changed weights, the last change first."""
        limit = number(request, "limit", 100, LIMIT_MAX)
        return as_json(queries.sharing.changes(request.query_params.get("name"), limit))

    async def preemptions(request: Request) -> Response:
        """Attempts that were ended so that others could have their places, the last one first."""
        job, before = number(request, "job", None), number(request, "before", None)
        limit, sees = number(request, "limit", 100, LIMIT_MAX), principal(request).sees
        if job is not None:
            seen_job(queries, job, principal(request))
        return as_json(queries.sharing.preemptions(request.query_params.get("user"), job, before, limit, sees))

    which = {
        "user": "only those by which this user has lost or gained", "job": "only those of this job, or for it",
        "before": "only those with smaller numbers", "limit": f"at most so many, up to {LIMIT_MAX:,}",
    }  # fmt: skip
    of_changes = {"name": "only of this user or organisation", "limit": which["limit"]}
    return (
        Operation("GET", "/shares", shares, list[ShareStatus]),
        Operation("GET", "/shares/{name:path}", show_share, ShareStatus),
        Operation("PUT", "/shares/{name:path}", reweigh, ShareStatus, Weight, role="admin"),
        Operation("GET", "/reweighs", changes, list[WeightChange], query=of_changes, role="operator"),
        Operation("GET", "/preemptions", preemptions, list[PreemptionStatus], query=which),
    )
