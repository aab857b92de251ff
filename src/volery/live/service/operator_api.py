"""Operations of the API for operators: nodes, hosts, users, shares, preemptions and figures for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from volery.core.errors import InputError
from volery.core.model import Address
from volery.live.service.figures import MEDIA_TYPE, exposition
from volery.live.service.forecaster import Forecaster
from volery.live.service.job_service import JobService
from volery.live.service.queries import JobQueries
from volery.live.service.reports import Sample
from volery.live.service.requests import (
    LIMIT_MAX,
    NotThereError,
    Operation,
    Traffic,
    as_json,
    body_of,
    by_whom,
    choice,
    number,
    principal,
    seen_job,
)
from volery.live.status import (
    HostStatus,
    NodeState,
    NodeStatus,
    PreemptionStatus,
    ShareStatus,
    UserStatus,
    Weight,
    WeightChange,
)

NODE_FILTERS: Final = {
    "state": "only these: in use, short, drained or lost",
    "host": "only on this host",
    "cluster": "only those that this component is in charge of, as lm/0",
    "text": "only where address, host, hostname or labels contain this",
}

log = logging.getLogger(__name__)


def is_asked_for(
    node: NodeStatus,
    owners: Mapping[Address, Sequence[Address]],
    state: str | None = None,
    host: str | None = None,
    cluster: str | None = None,
    text: str | None = None,
) -> bool:
    """True if a node passes filters, see `NODE_FILTERS`; None passes all."""
    if state not in (None, node.state) or host not in (None, node.host):
        return False
    if cluster is not None and cluster not in owners.get(node.address, ()):
        return False
    if text is None:
        return True
    return any(text in words for words in (node.address, node.host, node.hostname, labels_of(node)))


def labels_of(node: NodeStatus) -> str:
    return ", ".join(f"{key} = {value}" for key, value in sorted(node.labels.items()))


def operator_operations(
    service: JobService, traffic: Traffic, foreteller: Forecaster | None = None
) -> tuple[Operation, ...]:
    async def nodes(request: Request) -> Response:
        """All nodes, with what their machines are and how many tasks run there."""
        filters = {name: request.query_params.get(name) for name in NODE_FILTERS}
        filters["state"] = choice(request, "state", get_args(NodeState))

        owners = {} if filters["cluster"] is None else await service.queries.owners()
        return as_json([node for node in service.queries.nodes() if is_asked_for(node, owners, **filters)])

    async def history(_: Request) -> Response:
        """The last six hours: use, queue and failures, every ten seconds, since the API has started."""
        return as_json(service.queries.samples())

    async def hosts(_: Request) -> Response:
        """All hosts of the federation: what they hold, whether they answer, and what runs there."""
        return as_json(service.queries.all_hosts())

    async def drain(request: Request) -> Response:
        """Place nothing on a node from now on; what runs there goes on."""
        return await change(request, drained=True)

    async def undrain(request: Request) -> Response:
        """Use a node again."""
        return await change(request, drained=False)

    async def change(request: Request, drained: bool) -> Response:
        address = f"{request.path_params['role']}/{request.path_params['node']}"
        status = await service.drain(address, drained)
        if status is None:
            raise NotThereError(f"nodes/{address[:80]}", "there is no such node; `volery nodes` lists them")
        log.info("%s is %s%s", address, "drained" if drained else "in use again", by_whom(request))
        return as_json(status, 202)

    async def users(request: Request) -> Response:
        """Users with something under way or a share; without the role of an operator only oneself."""
        return as_json(service.queries.users(principal(request).sees))

    async def metrics(_: Request) -> Response:
        """Figures in the text format of Prometheus."""
        forecast_meters = [] if foreteller is None else await foreteller.meters()
        return Response(exposition(service, traffic, forecast_meters), media_type=MEDIA_TYPE)

    one_node = "/nodes/{role:str}/{node:number}"
    return (
        Operation("GET", "/hosts", hosts, list[HostStatus]),
        Operation("GET", "/history", history, list[Sample], role="operator"),
        Operation("GET", "/nodes", nodes, list[NodeStatus], query=NODE_FILTERS),
        Operation("POST", one_node + "/drain", drain, NodeStatus, status=202, role="operator"),
        Operation("POST", one_node + "/undrain", undrain, NodeStatus, status=202, role="operator"),
        Operation("GET", "/users", users, list[UserStatus]),
        *sharing_operations(service.queries),
        Operation("GET", "/metrics", metrics, "text/plain", role="operator"),
    )


WEIGHT_BYTES_MAX: Final = 1024


def sharing_operations(queries: JobQueries) -> tuple[Operation, ...]:
    async def shares(request: Request) -> Response:
        """The shares of users and organisations, as a tree; without the role of an operator only the own one."""
        return as_json(queries.sharing.listed(principal(request).sees))

    async def show_share(request: Request) -> Response:
        """The share of a user, or of an organisation."""
        name = request.path_params["name"]
        share = queries.sharing.named(name, principal(request).sees)
        if share is None:
            raise NotThereError(f"shares/{name[:80]}", "nobody of that name has a share; `volery users` lists them")
        return as_json(share)

    async def reweigh(request: Request) -> Response:
        """Give a user, or an organisation, another weight; others lose running tasks only beyond what they are due."""
        body = await body_of(request, WEIGHT_BYTES_MAX, "is too long; it is one weight")

        try:
            new_weight = msgspec.json.decode(body, type=Weight)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InputError("body", f'is not {{"weight": 3}}: {error}') from None

        return as_json(
            await queries.sharing.reweigh(request.path_params["name"], new_weight.weight, principal(request).user)
        )

    async def changes(request: Request) -> Response:
        """Changes of weights, the last change first."""
        limit = number(request, "limit", 100, LIMIT_MAX)
        return as_json(queries.sharing.changes(request.query_params.get("name"), limit))

    async def preemptions(request: Request) -> Response:
        """Attempts that were ended so that others could have their places, the last one first."""
        job = number(request, "job", None)
        number_end = number(request, "before", None)
        limit = number(request, "limit", 100, LIMIT_MAX)
        sees = principal(request).sees

        if job is not None:
            seen_job(queries, job, principal(request))

        return as_json(queries.sharing.preemptions(request.query_params.get("user"), job, number_end, limit, sees))

    filters = {
        "user": "only those by which this user has lost or gained",
        "job": "only those of this job, or for it",
        "before": "only those with smaller numbers",
        "limit": f"at most so many, up to {LIMIT_MAX:,}",
    }
    change_filters = {"name": "only of this user or organisation", "limit": filters["limit"]}
    return (
        Operation("GET", "/shares", shares, list[ShareStatus]),
        Operation("GET", "/shares/{name:path}", show_share, ShareStatus),
        Operation("PUT", "/shares/{name:path}", reweigh, ShareStatus, Weight, role="admin"),
        Operation("GET", "/reweighs", changes, list[WeightChange], query=change_filters, role="operator"),
        Operation("GET", "/preemptions", preemptions, list[PreemptionStatus], query=filters),
    )
