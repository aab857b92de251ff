"""The description of the API, made from the structs that it sends: there is no second schema to keep in step."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import volery
from volery.live.service.tokens import Role
from volery.live.status import ErrorResponse

Endpoint = Callable[[Request], Awaitable[Response]]


class Operation(msgspec.Struct, frozen=True):
    """One operation of the API.

    Args:
        method: GET, POST or PUT.
        path: with parameters as `{id:number}`.
        endpoint: what does it; the first line of its docstring is the summary.
        answers: what is sent back: a struct type or a media type.
        takes: the struct type of the request's body.
        query: name -> description of query parameters.
        status: of success.
        role: who may have it, where there are tokens; None: everybody.
    """

    method: str
    path: str
    endpoint: Endpoint
    answers: Any
    takes: Any = None
    query: Mapping[str, str] = {}
    status: int = 200
    role: Role | None = "user"


_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    operations = list(operations)
    types = [kind for operation in operations for kind in (operation.answers, operation.takes) if _is_type(kind)]
    schemas, components = msgspec.json.schema_components(
        [*types, ErrorResponse], ref_template="#/components/schemas/{name}"
    )
    found = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    refusal = schemas[-1]
    for operation in operations:
        answer = next(found) if _is_type(operation.answers) else None
        body = next(found) if _is_type(operation.takes) else None
        entry: dict[str, Any] = {
            "summary": (operation.endpoint.__doc__ or "").partition("\n")[0],
            "operationId": getattr(operation.endpoint, "__name__", ""),
            "parameters": _parameters(operation),
            "responses": {
                str(operation.status): {"description": "done", "content": _content(answer, operation.answers)},
                "4XX": {"description": "not done, and why", "content": _content(refusal, None)},
            },
        }
        if operation.role is None:
            entry["security"] = []
        elif operation.role != "user":
            entry["description"] = f"Takes the role {operation.role}."
        if body is not None:
            entry["requestBody"] = {"required": True, "content": _content(body, None)}
        paths.setdefault(re.sub(r":\w+}", "}", operation.path), {})[operation.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "Volery", "version": volery.__version__, "summary": "Jobs of a federation of schedulers"},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _is_type(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, str)


def _content(schema: Any, media_type: Any) -> dict[str, Any]:
    return {media_type: {}} if schema is None else {"application/json": {"schema": schema}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": _NUMBER if kind == "number" else {"type": "string"}}
        for name, kind in re.findall(r"{(\w+):(\w+)}", operation.path)
    ]
    return in_path + [
        {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in operation.query.items()
    ]
