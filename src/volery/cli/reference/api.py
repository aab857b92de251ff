"""The page of the API, from its own description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from volery.cli.reference.structs import cell
from volery.look.text import markdown_table


def api() -> Iterator[str]:
    """The requests of the HTTP API and their answers."""
    from volery.live.service.api import operations
    from volery.live.service.forecaster import Forecaster
    from volery.live.service.job_service import JobService
    from volery.live.service.requests import Traffic, describe

    service = SimpleNamespace(queries=None)  # nothing is asked of it here
    known = operations(cast(JobService, service), None, Traffic(), cast(Forecaster, object()))
    description = describe(known)
    yield from (
        "# The API over HTTP",
        "",
        "A running API describes itself at `/openapi.json`.",
        "",
    )
    rows = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            asked = ", ".join(f"`{parameter['name']}`" for parameter in operation.get("parameters", ()))
            rows.append((f"`{method.upper()} {path}`", cell(operation["summary"]), asked))
    yield from markdown_table(("request", "what it does", "parameters"), rows)
    yield from ("## What is sent", "")
    for name, schema in description["components"]["schemas"].items():
        if "properties" in schema:
            yield from (f"### {name}", "", cell(schema.get("description", "")), "")
            shown = [
                (f"`{key}`", cell(_schema(each)), cell(each.get("description", "")))
                for key, each in schema["properties"].items()
            ]
            yield from markdown_table(("key", "type", "meaning"), shown)


def _schema(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(_schema(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    return " | ".join(map(str, schema["enum"])) if "enum" in schema else str(schema.get("type", "anything"))
