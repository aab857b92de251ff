"""Waits of live programs: each has a limit, or states why it needs none (decision 66)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tests.test_tidy import OURS, PACKAGE, demand_none, place, text_of, tree_of

LIVE = [path for path in OURS if path.is_relative_to(PACKAGE / "live")]
WAITS: Mapping[str, str] = {
    "load.py _Load.submit_all": "a load generator; it ends with its operator",
    "load.py load_by_api": "a load generator; it ends with its operator",
    "assembly.py serve": "until a signal; it ends what it waits for then",
    "calibration.py hop_us": "a measurement, between transports that have met",
    "clock.py is_set_within": "the wait of a task of its own, which the limit cancels",
    "dashboard/tasks.py logs": "each piece of output has a limit of its own",
    "follower.py FutureFollower._fetch": "a thread that its client ends with None",
    "load.py _measure": "a load generator, within LIMIT_S",
    "load.py load": "a load generator; it ends with its operator",
    "node/call.py CallExecutor.close": "workers that are killed",
    "node/call.py CallExecutor._new_worker": "a process that is killed",
    "node/call.py CallExecutor._serve": "for a call; it is cancelled when the executor closes",
    "node/call.py CallExecutor._bury": "a process that is killed",
    "node/processes.py ProcessExecutor.close": "processes that are killed after their time of grace",
    "node/processes.py ProcessExecutor._confine": "a process that is killed",
    "node/supervisor.py TaskSupervisor.serve": "until no host needs it; see `_look`",
    "node/worker_process.py WorkerProcess.wait": "a process that is killed",
    "runtime/host.py Host.run": "until the host is stopped",
    "service/archive.py Archive.close": "a task that is cancelled",
    "service/batches.py Acknowledgements.close": "a sync of the disk, which nobody may skip",
    "service/batches.py Checkpoints.until": "for something to write; closing sets it",
    "service/events.py EventFeed._publish": "for a commit; it is cancelled when the feed closes",
    "service/events.py EventFeed.close": "a task that is cancelled",
    "service/failover.py Failover.close": "tasks that are cancelled",
    "service/failover.py Failover.settled": "a move that is written, tried again until the store closes",
    "service/forecaster.py ask_lab": "a process that is killed",
    "service/forecaster.py _answer_of": "within the limit of `ask_lab`",
    "service/http_server.py Listener.wait_closed": "tasks that are cancelled",
    "service/submissions.py JobSubmissions.stop": "a task that is cancelled",
    "service/submissions.py SubmitThrottle.room": "for turns of this host, which a timer of its own takes",
}
"""Waits in `live` without a limit of their own, and why none is needed."""
SWALLOWED: Mapping[str, str] = {
    "node/supervisor.py main.serve": "the program ends then",
}
"""Places in `live` that handle a cancellation and do not raise it again, and why they may."""


def waits_without_limit(tree: ast.Module) -> Iterator[str]:
    """The functions of a file that wait without a limit, by their names."""
    for function, node in within_functions(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of, name = ast.unparse(node.func.value), node.func.attr
            limited = any(keyword.arg == "timeout" for keyword in node.keywords)
            if of == "asyncio" and name in ("wait", "gather"):
                endless = not limited
            else:
                endless = name in ("wait", "join", "acquire", "get") and not node.args and not limited
            if endless:
                yield function


def swallows(tree: ast.Module) -> Iterator[str]:
    """The coroutines of a file that may swallow a cancellation, by their names."""
    for function, node in within_functions(tree, coroutines=True):
        if isinstance(node, ast.ExceptHandler):
            raises = any(isinstance(below, ast.Raise) for below in ast.walk(node))
            kinds = [] if raises else [node.type or ast.Name("BaseException")]
        else:
            suppressing = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress")
            kinds = node.args if isinstance(node, ast.Call) and suppressing else []
        if any(re.search(r"\b(BaseException|CancelledError)\b", ast.unparse(kind)) for kind in kinds):
            yield function


def within_functions(
    tree: ast.AST, outer: str = "", *, coroutines: bool = False, inside: bool = False
) -> Iterator[tuple[str, ast.AST]]:
    """All nodes below, each with the name of the function that it is in; only those in coroutines, if so asked."""
    for node in ast.iter_child_nodes(tree):
        name, here = outer, inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name, here = f"{outer}.{node.name}".lstrip("."), isinstance(node, ast.AsyncFunctionDef)
        if here or not coroutines:
            yield name, node
        yield from within_functions(node, name, coroutines=coroutines, inside=here)


def test_no_wait_in_live_is_without_a_limit_unless_it_states_its_reason() -> None:
    """A wait for something that never comes is a host that never opens, or never ends (decision 66)."""
    endless = {
        f"{path.relative_to(PACKAGE / 'live')} {name}" for path in LIVE for name in waits_without_limit(tree_of(path))
    }
    assert sorted(endless - WAITS.keys()) == []
    assert sorted(WAITS.keys() - endless) == [], "listed, and gone"


def test_nothing_in_live_swallows_a_cancellation() -> None:
    """`asyncio.wait_for` does, up to Python 3.11; a limit around it, which cancels once, is lost then (decision 66)."""
    banned = [
        place(path, number)
        for path in LIVE
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if re.search(r"\basyncio\.wait_for\(|\bimport .*\bwait_for\b", line)
    ]
    demand_none(banned)
    found = {f"{path.relative_to(PACKAGE / 'live')} {name}" for path in LIVE for name in swallows(tree_of(path))}
    assert sorted(found - SWALLOWED.keys()) == []
    assert sorted(SWALLOWED.keys() - found) == [], "listed, and gone"


def test_the_rules_can_fail() -> None:
    waits = ast.parse("class A:\n async def f(self):\n  await self.event.wait()\n  await asyncio.wait((x,), timeout=1)")
    assert list(waits_without_limit(waits)) == ["A.f"]
    suppressed = "async def f():\n with suppress(OSError, asyncio.CancelledError):\n  await g()"
    caught = "async def f():\n try:\n  await g()\n except BaseException:\n  KIND"
    assert list(swallows(ast.parse(suppressed))) == list(swallows(ast.parse(caught.replace("KIND", "pass")))) == ["f"]
    assert not list(swallows(ast.parse(caught.replace("KIND", "raise"))))
