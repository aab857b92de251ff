"""What the API offers to those who operate a federation: nodes, draining, users, shares, preemptions, metrics."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import Response

from volery.live.service.admission import NotThereError, Traffic, as_json, principal
from volery.live.service.desk import Desk
from volery.live.service.meters import MEDIA_TYPE, exposition
from volery.live.service.openapi import Operation
from volery.live.service.shares import sharing_operations
from volery.live.status import NodeStatus, UserStatus

log = logging.getLogger(__name__)


def operating(desk: Desk, traffic: Traffic) -> tuple[Operation, ...]:
    """Nodes, users, shares and metrics."""

    async def nodes(_: Request) -> Response:
        """All nodes, with what their machines are and how many tasks run there."""
        return as_json(desk.nodes())

    async def drain(request: Request) -> Response:
        """Place nothing on a node from now on; what runs there goes on."""
        return await change(request, drained=True)

    async def undrain(request: Request) -> Response:
        """Use a node again."""
        return await change(request, drained=False)

    async def change(request: Request, drained: bool) -> Response:
        address = f"{request.path_params['role']}/{request.path_params['node']}"
        status = await desk.drain(address, drained)
        if status is None:
            raise NotThereError(f"nodes/{address[:80]}", "there is no such node; `volery nodes` lists them")
        log.info("%s is %s by %s", address, "drained" if drained else "in use again", principal(request).user or "-")
        return as_json(status, 202)

    async def users(request: Request) -> Response:
        """Users with something under way or a share, and what they have; who is no operator hears of themselves."""
        return as_json(desk.users(principal(request).sees))

    async def metrics(_: Request) -> Response:
        """Figures in the text format of Prometheus."""
        return Response(exposition(desk, traffic), media_type=MEDIA_TYPE)

    one_node = "/nodes/{role:str}/{node:number}"
    return (
        Operation("GET", "/nodes", nodes, list[NodeStatus]),
        Operation("POST", one_node + "/drain", drain, NodeStatus, status=202, role="operator"),
        Operation("POST", one_node + "/undrain", undrain, NodeStatus, status=202, role="operator"),
        Operation("GET", "/users", users, list[UserStatus]),
        *sharing_operations(desk),
        Operation("GET", "/metrics", metrics, "text/plain", role="operator"),
    )
