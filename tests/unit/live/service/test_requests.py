"""A query is read or refused by its key; users touch their own jobs; the description names all that is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from volery.core.errors import InputError
from volery.live.jobs import JobDescription
from volery.live.service.authentication import ANYBODY, Principal
from volery.live.service.ledgers import ArchivedJob
from volery.live.service.outputs import AwayError
from volery.live.service.requests import (
    NotAllowedError,
    NotThereError,
    Operation,
    body_of,
    choice,
    describe,
    number,
    refusal,
    seen_job,
    status_of,
    with_user,
)
from volery.live.service.submissions import ConflictError
from volery.live.status import JobStatus

ADA, OLGA = Principal("ada", "user"), Principal("olga", "operator")


def asked(query: str, *body: bytes) -> Request:
    pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in body]

    async def receive() -> Any:
        return pieces.pop(0) if pieces else {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": []}
    return Request(scope, receive)


def test_a_number_is_read_or_its_default_taken() -> None:
    assert number(asked("limit=7"), "limit", 100, 10) == 7
    assert number(asked(""), "limit", 100, 10) == 100


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "11", "%C2%B2", "9" * 20])
def test_what_is_no_number_or_too_large_is_refused_by_its_key(text: str) -> None:
    with pytest.raises(InputError, match="expected a whole number from 0 to 10") as refused:
        number(asked(f"limit={text}"), "limit", 100, 10)
    assert refused.value.place == "query.limit"


def test_a_choice_is_one_of_the_known_words() -> None:
    assert choice(asked("state=done"), "state", ("done", "failed")) == "done"
    assert choice(asked(""), "state", ("done",), "failed") == "failed"
    with pytest.raises(InputError, match="expected done, failed"):
        choice(asked("state=gone"), "state", ("done", "failed"))


def test_a_body_is_read_up_to_its_limit() -> None:
    assert asyncio.run(body_of(asked("", b"ab", b"cd"), 4, "is too long")) == b"abcd"
    with pytest.raises(InputError, match="is too long"):
        asyncio.run(body_of(asked("", b"ab", b"cde"), 4, "is too long"))


def test_a_job_belongs_to_who_submits_it_and_administrators_submit_for_others() -> None:
    job, of_bob = JobDescription(command="true"), JobDescription(command="true", user="bob")
    assert with_user(job, ADA).user == "ada"
    assert with_user(of_bob, ANYBODY).user == "bob"
    assert with_user(of_bob, Principal("root", "admin")).user == "bob"
    for who in (ADA, OLGA):
        with pytest.raises(NotAllowedError, match="does not submit for others"):
            with_user(of_bob, who)


class Jobs:
    """Job 1 is ada's, job 2 was ada's and is archived."""

    def job(self, number: int) -> JobStatus | None:
        if number != 1:
            return None
        return JobStatus(id=1, name="", user="ada", state="done", tasks=1, submitted_us=1, revision=1)

    def archived(self, number: int) -> ArchivedJob | None:
        return ArchivedJob("ada", 5) if number == 2 else None


def test_jobs_of_others_do_not_exist_and_archived_ones_are_named_to_their_user() -> None:
    assert seen_job(Jobs(), 1, ADA).id == seen_job(Jobs(), 1, OLGA).id == 1
    for who in (ADA, OLGA):
        with pytest.raises(NotThereError, match="in file 5 of the folder archive"):
            seen_job(Jobs(), 2, who)
    bob = Principal("bob", "user")
    for job in (1, 2, 3):
        with pytest.raises(NotThereError, match="there is no such job"):
            seen_job(Jobs(), job, bob)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("job", "is wrong"), 422),
        (ConflictError("job.key", "is taken"), 409),
        (AwayError("node/1", "does not answer"), 504),
        (NotAllowedError("origin", "no"), 403),
        (NotThereError("jobs/7", "no"), 404),
    ],
)
def test_each_problem_has_its_status(error: InputError | NotThereError, status: int) -> None:
    assert status_of(error) == status


def test_who_is_not_known_is_told_how_to_be() -> None:
    assert refusal("authorization", "sign in", 401).headers["www-authenticate"] == "Bearer"
    told = refusal("jobs/7", "there is no such job", 404)
    assert msgspec.json.decode(told.body) == {"error": {"place": "jobs/7", "problem": "there is no such job"}}


def test_the_description_has_each_operation_with_its_parameters_and_types() -> None:
    async def show(_: Request) -> Response:
        """One job.

        And more.
        """
        return Response()

    found = describe(
        [
            Operation("GET", "/jobs/{id:number}", show, JobStatus, query={"first": "from here"}),
            Operation("POST", "/jobs", show, JobStatus, JobDescription, status=201, role="admin"),
            Operation("GET", "/healthz", show, "text/plain", role=None),
        ]
    )
    one = found["paths"]["/jobs/{id}"]["get"]
    assert one["summary"] == "One job."
    assert [(parameter["name"], parameter["in"]) for parameter in one["parameters"]] == [
        ("id", "path"),
        ("first", "query"),
    ]
    submit = found["paths"]["/jobs"]["post"]
    assert set(submit["responses"]) == {"201", "4XX"}
    assert submit["description"] == "Takes the role admin."
    assert submit["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/JobDescription")
    assert found["paths"]["/healthz"]["get"]["security"] == []
    assert {"JobStatus", "JobDescription", "ErrorResponse"} <= set(found["components"]["schemas"])
