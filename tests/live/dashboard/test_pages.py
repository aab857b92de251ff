"""The live page over HTTP: what its pages say is what the API says, to whom it may be said, and nothing that hurts."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from tests.live.bench import LIMIT_S
from tests.live.serving import at_work, serving

from volery.live.service import reports
from volery.live.service.authentication import TokenFile
from volery.look.text import time_span

EVIL = "<script>alert(1)</script>\"'&"


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx2.Client]:
    with serving(tmp_path) as (url, _), httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client:
        yield client


def submit(http: httpx2.Client, **job: object) -> int:
    return int(http.post("/jobs", json=job).json()["id"])


def wait_until_running(http: httpx2.Client, number: int, tasks: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while http.get(f"/jobs/{number}").json()["running"] < tasks:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def submit_and_wait(http: httpx2.Client, **job: object) -> int:
    number = submit(http, **job)
    assert http.get(f"/events?job={number}").is_success
    return number


def facts(text: str) -> dict[str, str]:
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)
    return {key: html.unescape(re.sub(r"<[^>]*>", "", value)).strip() for key, value in pairs}


def rows(text: str) -> list[list[str]]:
    found = re.findall(r"<tr>(.*?)</tr>", text.partition("<tbody>")[2].partition("</tbody>")[0])
    return [
        [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in found
    ]


def test_pages_say_what_the_api_says(http: httpx2.Client) -> None:
    number = submit_and_wait(http, command="test $VOLERY_INDEX != 1", tasks=3, name="mixed", user="ada")
    told, page = http.get(f"/jobs/{number}").json(), http.get(f"/dashboard/jobs/{number}").text
    shown = facts(page)
    assert shown["state"] == told["state"] == "failed"
    assert shown["reason"] == told["reason"]
    assert "killed" not in shown, "what has not happened takes no place"
    assert [int(shown[part]) for part in ("finished", "failed")] == [told[part] for part in ("finished", "failed")]
    assert shown["command"] == "test $VOLERY_INDEX != 1"
    assert re.findall(r'aria-label="task (\d): (\w+) on', page) == [
        ("0", "finished"),
        ("1", "failed"),
        ("2", "finished"),
    ]
    task = http.get(f"/jobs/{number}/tasks/1").json()
    shown = facts(http.get(f"/dashboard/jobs/{number}/tasks/1").text)
    assert (shown["node"], shown["exit code"], shown["reason"]) == (task["node"], "1", task["reason"])
    (listed,) = rows(http.get("/dashboard/jobs").text)
    assert listed[:5] == [str(number), "failed", "mixed", "ada", "3"]
    nodes = rows(http.get("/dashboard/nodes").text)
    assert [(row[0], int(row[3]), int(row[4])) for row in nodes] == [
        (node["address"], node["slots"], node["cores"]) for node in http.get("/nodes").json()
    ]
    shown = facts(http.get("/").text)
    assert (shown["nodes"], shown["slots"], shown["tasks that run"]) == ("2", "2", "0")
    assert "drained" not in shown, "what there is none of takes no place"


def test_what_runs_is_shown_where_it_runs(http: httpx2.Client) -> None:
    submit_and_wait(http, command="true", tasks=3)
    number = submit(http, command="sleep 60", tasks=2, user="ada")
    with http.stream("GET", f"/events?job={number}") as events:
        assert any('"running":2' in line for line in events.iter_lines())
    for task in (0, 1):
        told = http.get(f"/jobs/{number}/tasks/{task}").json()
        page = http.get(f"/dashboard/nodes/{told['node']}").text
        assert f"{number}/{task}" in [row[0] for row in rows(page)]
    (user,) = [row for row in rows(http.get("/dashboard/users").text) if row[0] == "ada"]
    running = next(user for user in http.get("/users").json() if user["user"] == "ada")["tasks_running"]
    assert user[3] == str(running) == "2"
    http.post(f"/jobs/{number}/cancel", json={})


def test_the_command_of_a_job_is_shown_without_the_values_of_its_environment(http: httpx2.Client) -> None:
    number = submit(
        http, command=["echo", "hello world"], env={"KEY": "secret"}, cwd="/", constraints=["cores >= 1"], tasks=2
    )
    page = http.get(f"/dashboard/jobs/{number}").text
    shown = facts(page)
    assert [shown[name] for name in ("command", "environment", "directory", "constraints")] == [
        "echo 'hello world'",
        "KEY",
        "/",
        "cores >= 1",
    ]
    assert "secret" not in page
    several = submit(http, tasks=[{"command": "true"}, {"command": "sleep 0", "count": 3}])
    assert facts(http.get(f"/dashboard/jobs/{several}").text)["command"] == "true (of task 0; 2 different ones)"


def test_who_submits_from_plan_is_asked_about_the_command(http: httpx2.Client) -> None:
    """A link may have filled the form in."""
    page = http.get("/dashboard/plan", params={"command": "echo <b> & more", "tasks": 2}).text
    asked = re.findall(r'data-order="/jobs" data-question="(.*?)"', page)
    assert [html.unescape(one) for one in asked] == ["Submit this job of 2 tasks, which runs: echo <b> & more"]
    assert "submit this job" not in http.get("/dashboard/plan", params={"tasks": 2}).text, (
        "there is no command to submit"
    )


def test_jobs_are_found_by_name(http: httpx2.Client) -> None:
    for name in ("night build", "day build", "other"):
        submit(http, command="true", name=name)
    assert {job["name"] for job in http.get("/jobs?name=build").json()} == {"night build", "day build"}
    assert [row[2] for row in rows(http.get("/dashboard/jobs?name=night").text)] == ["night build"]


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    monkeypatch.setattr(reports, "STEP_S", 0.02)
    with serving(tmp_path) as (url, _), httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client:
        yield client


def test_curves_have_the_figures_of_the_history(sampled: httpx2.Client) -> None:
    failed = submit_and_wait(sampled, command="false", tasks=2)
    assert sampled.get(f"/jobs/{failed}").json()["state"] == "failed"
    submit(sampled, command="sleep 60", tasks=2)
    deadline = time.monotonic() + LIMIT_S
    while not (told := sampled.get("/history").json()) or (told[-1]["used"], sum(s["failed"] for s in told)) != (2, 2):
        assert time.monotonic() < deadline
    assert {sample["usable"] for sample in told} == {2}
    page = sampled.get("/").text
    assert "<b>utilisation</b> last 100.0 %, at most 100.0 %" in page
    assert "<b>failed attempts</b> 2 in all" in page
    assert len(re.findall(r"<polyline points=", page)) == 3


def test_output_is_shown_from_its_end(http: httpx2.Client) -> None:
    number = submit_and_wait(http, command="seq 1 20000; printf '<script>\\033[31m'")
    page = http.get(f"/dashboard/jobs/{number}/tasks/0").text
    size = len(http.get(f"/jobs/{number}/tasks/0/logs").content)
    assert f"The last 16,384 of {size:,} bytes" in page
    assert "20000\n&lt;script&gt;</pre>" in page, "without the colours of terminals"


def test_jobs_are_filtered_sorted_and_cut_into_pages(http: httpx2.Client) -> None:
    for tasks, user in ((1, "ada"), (3, "bob"), (2, "ada")):
        submit_and_wait(http, command="true", tasks=tasks, user=user)

    def shown(query: str) -> list[str]:
        return [row[0] for row in rows(http.get(f"/dashboard/jobs?{query}").text)]

    assert shown("") == ["2", "1", "0"]
    assert shown("user=ada&sort=id") == ["0", "2"]
    assert shown("sort=-tasks") == ["1", "2", "0"]
    assert shown("sort=-tasks&rows=1&skip=1") == ["2"]
    assert shown("state=running") == []
    following = re.search(
        r'href="([^"]*)" id="page-next"', http.get("/dashboard/jobs?sort=-tasks&rows=1&user=ada").text
    )
    assert following is not None
    assert [row[0] for row in rows(http.get(html.unescape(following.group(1))).text)] == ["0"]
    for wrong in ("sort=nothing", "skip=x", "rows=501", "state=gone"):
        assert http.get(f"/dashboard/jobs?{wrong}").status_code == 422


def test_a_filter_of_preemptions_may_be_empty_and_what_is_no_number_is_refused(http: httpx2.Client) -> None:
    assert http.get("/dashboard/preemptions?user=ada&job=").status_code == 200, "a form sends its empty fields"
    for job in ("\N{SUPERSCRIPT TWO}", "x", "9" * 40):
        assert http.get("/dashboard/preemptions", params={"job": job}).status_code == 422, job
    assert http.get("/dashboard/preemptions?job=7").status_code == 404


def test_a_page_that_has_a_view_is_told_so_or_given_its_live_part(http: httpx2.Client) -> None:
    submit_and_wait(http, command="true")
    whole = http.get("/dashboard/jobs").text
    (tag,) = re.findall(r'data-tag="([^"]*)"', whole)
    known = {"if-none-match": html.unescape(tag), "volery-part": "live"}
    same = http.get("/dashboard/jobs", headers=known)
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", known["if-none-match"])
    assert 0 < float(same.headers["volery-again"]) <= 60
    assert "volery-behind" not in same.headers
    number = submit_and_wait(http, command="true", name="later")
    again = http.get("/dashboard/jobs", headers=known)
    assert again.headers["volery-behind"] == "1" or "later" in again.text, "it is told to ask once more"
    fresh = http.get("/dashboard/jobs", headers={"volery-part": "live"})
    assert fresh.text.startswith('<div id="live"')
    assert [row[0] for row in rows(fresh.text)] == [str(number), "0"], "who has not said what it has is told what holds"
    assert fresh.headers["etag"] != known["if-none-match"]
    assert http.get("/dashboard/jobs?sort=nothing", headers=known).status_code == 422


def test_pages_that_listen_are_counted_until_they_leave(http: httpx2.Client) -> None:
    def listening() -> str:
        found = re.search(r"^volery_pages_open\{\} (.*)$", http.get("/metrics").text, re.MULTILINE)
        assert found is not None
        return found.group(1)

    with http.stream("GET", "/dashboard/pulse") as pulse:
        lines = pulse.iter_lines()
        assert next(lines) == ": volery"
        assert listening() == "1"
    until_s = time.monotonic() + LIMIT_S
    while listening() != "0" and time.monotonic() < until_s:
        time.sleep(0.02)
    assert listening() == "0"


def test_long_lists_come_in_pieces_and_whole(http: httpx2.Client) -> None:
    number = submit_and_wait(http, command="true", tasks=3)
    assert [task["index"] for task in http.get(f"/jobs/{number}/tasks?limit=10000").json()] == [0, 1, 2]
    waiting = submit(http, command="true", tasks=1_203)
    told = http.get(f"/jobs/{waiting}/tasks?first=2&limit=10000").json()
    assert [task["index"] for task in told] == list(range(2, 1_203))
    assert len(http.get(f"/jobs/{waiting}/tasks?limit=700").json()) == 700
    http.post(f"/jobs/{waiting}/cancel", json={})


def test_hostile_names_are_text(http: httpx2.Client) -> None:
    number = submit_and_wait(http, command="false", name=EVIL, user=EVIL)
    asked = (f"jobs?user={EVIL}&reason={EVIL}", f"nodes?text={EVIL}", f"jobs?sort={EVIL}")
    for path in ("jobs", f"jobs/{number}", f"jobs/{number}/tasks/0", "users", *asked):
        page = http.get(f"/dashboard/{path}").text
        assert "<script>" not in page
        assert EVIL not in page
    assert EVIL in html.unescape(http.get("/dashboard/jobs").text)


def test_pages_may_run_their_own_script_and_nothing_else(http: httpx2.Client) -> None:
    first, second = http.get("/"), http.get("/")
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce is not None
    assert f'nonce="{nonce.group(1)}"' in first.text
    assert nonce.group(1) not in second.text, "each page has its own"
    assert http.get("/dashboard/jobs/99").status_code == 404
    assert http.get("/dashboard/nodes/node/99").status_code == 404


def test_users_see_their_own_and_forged_orders_are_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    ada, bob = tokens.add("ada", "user")[0], tokens.add("bob", "user")[0]
    with (
        serving(tmp_path, tokens=tokens) as (url, _),
        httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http,
    ):
        with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {ada}"}, trust_env=False) as by_token:
            number = submit(by_token, command="sleep 60", name="secret", user="ada")
        for path in ("/", "/dashboard/jobs", f"/dashboard/jobs/{number}", "/dashboard/nodes", "/dashboard/users"):
            led = http.get(path)
            assert (led.status_code, led.headers["location"].partition("?")[0]) == (303, "/dashboard/sign-in")
        assert http.get("/dashboard/pulse").status_code == 401
        for then in ("//elsewhere.example", "https://elsewhere.example", "/dashboard/..//x.example"):
            assert 'data-then="/"' in http.get("/dashboard/sign-in", params={"then": then}).text

        def signed_in(token: str, origin: str = url) -> int:
            http.cookies.clear()
            answer = http.post("/dashboard/session", json={"token": token}, headers={"origin": origin})
            kept = answer.headers.get("set-cookie", "")
            assert answer.status_code != 200 or ("HttpOnly" in kept and "SameSite=strict" in kept)
            assert token not in kept
            return answer.status_code

        assert signed_in(ada, "http://127.0.0.1:1") == signed_in("volery_x_y") == 403
        assert signed_in(bob) == 200
        assert "secret" not in http.get("/dashboard/jobs").text
        assert "secret" not in http.get("/dashboard/jobs?user=ada").text
        for path in ("", "/tasks/0"):
            assert http.get(f"/dashboard/jobs/{number}{path}").status_code == 404
        assert f"{number}/0" not in "".join(http.get(f"/dashboard/nodes/node/{node}").text for node in (0, 1))
        assert "ada" not in http.get("/dashboard/users").text
        shown = http.get("/").text
        assert not any(word in shown for word in ("Views", "tasks per second", "Allocation")), "figures of everybody"

        assert signed_in(ada) == 200
        assert "secret" in http.get("/dashboard/jobs").text
        order = f"/jobs/{number}/cancel"
        for headers in ({"origin": "http://127.0.0.1:1"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
            assert http.post(order, json={}, headers=headers).status_code == 403
        assert http.post("/nodes/node/0/drain", json={}, headers={"origin": url}).status_code == 403
        assert http.post(order, json={}, headers={"origin": url}).status_code == 202
        tokens.revoke("ada")
        assert http.get("/dashboard/jobs").status_code == 303, "a session ends with its token"
        assert signed_in(bob) == 200
        kept = dict(http.cookies)
        assert http.post("/dashboard/session/end", json={}, headers={"origin": url}).status_code == 200
        http.cookies.update(kept)
        assert http.get("/dashboard/jobs").status_code == 303, "and when it is left"


def figures_of(text: str, *names: str) -> list[str]:
    shown = facts(text)
    return [shown[name] for name in names]


def tables(text: str) -> list[list[list[str]]]:
    found = re.findall(r"<tbody>(.*?)</tbody>", text)
    return [rows(f"<tbody>{one}</tbody>") for one in found]


def percent(part: float, of: float = 1.0) -> str:
    return f"{100 * part / of:.1f} %"


class Still(NamedTuple):
    """A federation in which nothing changes.

    Args:
        http: its API.
        of_bob: the number of a job that has lost tasks, and waits.
    """

    http: httpx2.Client
    of_bob: int


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Still]:
    """Three clusters, users with shares, of whom one has lost tasks, and a drained node."""
    tmp_path = tmp_path_factory.mktemp("still")
    parameters = {"gms": 2, "lms": 3, "heartbeat_s": 0.05, "why": True, "shares": "ada:2+lab:1(bob:1)"}
    machines = [{"count": 9, "labels": {"disk": "ssd"}}]
    with (
        at_work(tmp_path, executor="sleep", machines=machines, parameters=parameters) as url,
        httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as http,
    ):
        submit_and_wait(http, command="true", tasks=20, user="ada", estimate_s=0.01)
        http.post("/nodes/node/8/drain", json={})
        of_bob = submit(http, command="true", tasks=11, user="bob", estimate_s=600)
        wait_until_running(http, of_bob, 8)
        of_ada = submit(http, command="true", tasks=9, user="ada", estimate_s=600)
        wait_until_running(http, of_ada, 5)
        yield Still(http, of_bob)


def test_every_number_of_the_federation_is_that_of_the_api(still: Still) -> None:
    http = still.http
    told, page = http.get("/summary").json(), http.get("/").text
    assert figures_of(
        page,
        "nodes",
        "drained",
        "slots",
        "tasks that run",
        "utilisation of usable slots",
        "jobs pending",
        "jobs running",
        "tasks that wait",
        "tasks that have ended",
    ) == [
        *(str(told[name]) for name in ("nodes", "drained", "slots", "running")),
        percent(told["used"], told["usable"]),
        *(str(told[name]) for name in ("jobs_pending", "jobs_running", "tasks_pending", "ended")),
    ]
    users = {one["user"]: one for one in http.get("/users").json()}
    assert told["tasks_pending"] == sum(user["tasks_pending"] for user in users.values())
    assert told["running"] == sum(node["running"] for node in http.get("/nodes").json()) == 8
    in_clusters, old, wrong = tables(page)
    assert in_clusters == [
        [
            one["name"],
            *(str(one[name]) for name in ("nodes", "drained", "lost", "slots", "running")),
            f" {percent(one['used'], one['usable'])}",
        ]
        for one in told["clusters"]
    ]
    shown = re.findall(r'demand">(p..)</span><span class="count">(.*?)</span>', page)
    assert shown == [(name, time_span(told["allocation"][name])) for name in ("p50", "p95", "p99")]
    views = {(one["by"], one["asked"]): one for one in told["views"]}
    pairs = [[views[f"gm/{gm}", f"lm/{lm}"] for lm in range(3)] for gm in range(2)]
    assert old == [[f"{time_span(one['recent_view_age_us'])}{one['recent']} decisions" for one in row] for row in pairs]
    assert wrong == [
        [
            f"{one['recent_refused']} of {one['recent']}since the start {one['refused']} of {one['decisions']}"
            for one in row
        ]
        for row in pairs
    ]


def test_every_number_of_a_job_is_that_of_the_api(still: Still) -> None:
    http, of_bob = still
    listed = rows(http.get("/dashboard/jobs").text)
    assert [[row[0], row[1], row[3], row[4], row[5]] for row in listed] == [
        [
            str(job["id"]),
            job["state"],
            job["user"],
            str(job["tasks"]),
            f"{progress_words(job)} {percent(job['finished'], job['tasks'])}",
        ]
        for job in http.get("/jobs").json()
    ]

    job, page = http.get(f"/jobs/{of_bob}").json(), http.get(f"/dashboard/jobs/{of_bob}").text
    states = ("tasks", "running", "finished", *(one for one in ("failed", "killed", "unsatisfiable") if job[one]))
    assert figures_of(page, *states, "pending") == [
        *(str(job[state]) for state in states),
        str(job["tasks"] - job["running"]),
    ]
    why = http.get(f"/jobs/{of_bob}/why").json()
    funnel = re.findall(r'demand">(.*?)</span><span class="count">(.*?)</span>', page)
    assert funnel == [(step["demand"], str(step["machines"])) for step in why["funnel"]]
    assert f"{why['waiting']} tasks of the job have not been started" in page
    decided, lost = tables(page)
    assert [row[1:5] for row in decided] == [
        [
            one["by"],
            one["chosen"] + (f" (after {one['omitted']} more)" if one["omitted"] else ""),
            one["node"],
            one["asked"],
        ]
        for one in why["decisions"]
    ]
    ledger = http.get("/preemptions").json()
    assert [row[1:6] for row in lost] == [
        [
            one["user"],
            f"{one['job']}/{one['index']}",
            str(one["attempt"]),
            one["for_user"],
            f"{one['for_job']}/{one['for_index']}",
        ]
        for one in ledger
    ]
    assert [row[7] for row in lost] == [
        f"{percent(one['loss']['before'])} \N{RIGHTWARDS ARROW} {percent(one['loss']['after'])}, due "
        f"{percent(one['loss']['due'])}"
        for one in ledger
    ]
    at_work_now = [task for task in http.get(f"/jobs/{of_bob}/tasks").json() if task["state"] == "running"]
    assert re.findall(r'aria-label="task (\d+): running on (.*?)"', page) == [
        (str(task["index"]), task["node"]) for task in at_work_now
    ]


def test_every_number_of_users_and_nodes_is_that_of_the_api(still: Still) -> None:
    http = still.http
    told, users = http.get("/summary").json(), http.get("/users").json()
    used, due, _ = tables(http.get("/dashboard/users").text)
    assert [[row[0], row[1], row[2].strip(), *row[3:7]] for row in used] == [
        [
            user["user"],
            percent(user["share"]),
            percent(user["tasks_running"], told["usable"]),
            *(str(user[name]) for name in ("tasks_running", "tasks_pending", "jobs_running", "jobs_pending")),
        ]
        for user in sorted(users, key=lambda user: -user["tasks_running"])
    ]
    assert [[row[0].strip("\N{EM SPACE}").removesuffix(" and its members"), *row[1:3]] for row in due] == [
        [one["name"], str(one["weight"]), percent(one["share"])] for one in http.get("/shares").json()
    ]

    for node, row in zip(http.get("/nodes").json(), rows(http.get("/dashboard/nodes").text), strict=True):
        state = "drained" if node["drained"] else "in use"
        assert row[:6] == [
            node["address"],
            state,
            *(str(node[name]) for name in ("running", "slots", "cores")),
            f"{node['memory_mb']:,}",
        ]
        shown_node = http.get(f"/dashboard/nodes/{node['address']}").text
        assert facts(shown_node)["running"] == f"{node['running']} of {node['slots']} slots"
        assert len(rows(shown_node)) == node["running"]


def progress_words(job: dict[str, int]) -> str:
    states = ("finished", "running", "failed", "killed", "unsatisfiable")
    return ", ".join(f"{job[state]} {state}" for state in states if job[state]) or "none has started"
