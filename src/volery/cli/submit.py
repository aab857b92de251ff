"""`volery submit`: a command, a script or a file becomes a job of a federation, and is followed to its end."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand

from volery.cli.jobs import Api, connected, print_job, state_words
from volery.cli.options import AsJson, argument, option
from volery.cli.output import INTERRUPTED, live_extra, print_answer
from volery.core.errors import InputError
from volery.lab.progress import OneLine

if TYPE_CHECKING:
    from volery.live.client import Client
    from volery.live.jobs import JobDescription
    from volery.live.scripts import Script
    from volery.live.status import JobStatus

JOB: Final = "The job"
OPTIONS: Final = {
    "constraints": "constraint",
    "cpu_milli": "cpus",
    "memory_mb": "memory",
    "timeout_s": "timeout",
    "grace_s": "grace",
    "estimate_s": "estimate",
    "tasks": "array",
}
"""Key of a job, or amount of its request -> the option that states it, where that has another name."""
USAGE_ERROR: Final = cast("type[typer.BadParameter]", typer.BadParameter.__bases__[0])
"""What the parser raises for words that no option takes, too."""


class SubmitCommand(TyperCommand):
    """Splits the words of `volery submit`: options end at a script and at `--`, and a script may state further ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        words = list(self.make_parser(ctx).parse_args(list(args))[0].get("words") or ())
        options = args[: len(args) - len(words)]

        if options[-1:] == ["--"]:
            args = [*options, "--", *words]  # the parser takes the first, and the second stands before a command
        elif words and (script := _script(words[0])) is not None:
            for line in script.options:
                self._check_line(ctx, line.place, line.words)
            args = [*itertools.chain.from_iterable(line.words for line in script.options), *args]
        else:
            ctx.allow_interspersed_args = True

        return super().parse_args(ctx, args)

    def _check_line(self, ctx: Any, place: str, words: list[str]) -> None:
        """Refuse a line of a script where it stands: among the words of the command it has no place of its own."""
        try:
            options = self.make_context(ctx.info_name, list(words), parent=ctx.parent).params
            job = _Submission(["--", "true"], _keys(options))
            with job.named_by_origin():
                job.description(None)
        except USAGE_ERROR as error:
            raise InputError(place, f"{error.format_message()}; `volery submit --help` lists the options") from None
        except InputError as error:
            raise InputError(f"{place}: {error.place}", error.problem) from None
        if options["words"]:
            raise InputError(place, f"{options['words'][0][:80]!r} is no option; write #VOLERY --option value")


def _script(name: str) -> Script | None:
    with live_extra():
        from volery.live.scripts import script_in
    return script_in(Path(name))


def _key(meaning: str, form: str | None = None) -> Any:
    """The option that states a key of a job."""
    return option(meaning, form=form, rich_help_panel=JOB)


def submit(
    words: Annotated[
        list[str] | None,
        argument("A job's file, a script and its arguments, or -- and a command.", "JOB.toml|SCRIPT|-- COMMAND"),
    ] = None,
    name: Annotated[str | None, _key("Name of the job in lists.")] = None,
    array: Annotated[str | None, _key("A task for each index, as 0-99, 0-99:2 or 1,3.", "INDICES")] = None,
    cpus: Annotated[float | None, _key("Processors of a task, where machines offer amounts.", "N")] = None,
    memory: Annotated[str | None, _key("Memory of a task, as 512M or 4G.", "SIZE")] = None,
    gpus: Annotated[int | None, _key("GPUs of a task.", "N")] = None,
    request: Annotated[list[str] | None, _key("Units of another amount; repeatable.", "NAME=N")] = None,
    constraint: Annotated[list[str] | None, _key("A condition, as 'cores >= 4'; repeatable.", "CONDITION")] = None,
    env: Annotated[list[str] | None, _key("A variable; without a value: as here; repeatable.", "NAME[=VALUE]")] = None,
    cwd: Annotated[str | None, _key("Existing directory on the node.", "DIR")] = None,
    timeout: Annotated[float | None, _key("Limit of a task; 0: none.", "SECONDS")] = None,
    grace: Annotated[float | None, _key("Time between SIGTERM and SIGKILL.", "SECONDS")] = None,
    estimate: Annotated[float | None, _key("Expected duration of a task.", "SECONDS")] = None,
    outputs: Annotated[list[str] | None, _key("A file that a task must leave; repeatable.", "FILE")] = None,
    key: Annotated[str | None, _key("Idempotency key.")] = None,
    user: Annotated[str | None, _key("Owner of the job.")] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "--wait", "-w", help="Stay until it has ended; the job's status is the command's."),
    ] = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Submit a command, a script, or a job from a file."""
    options = locals()  # by their names, as the lines of a script state them, too
    with connected(api, as_json) as client:
        job = _Submission(words or [], _keys(options))
        with job.named_by_origin():
            receipt = client.send(job.description(client))
        for warning in (*job.notes, *receipt.warnings):
            typer.echo(f"warning: {warning}", err=True)

        if watch:
            try:
                final_status = _watch(client, receipt.id, silent=as_json)
            except KeyboardInterrupt:
                typer.echo(f"job {receipt.id} goes on; volery cancel {receipt.id} ends it", err=True)
                raise typer.Exit(INTERRUPTED) from None
            print_job(client, final_status, as_json, task_limit=0)
            raise typer.Exit(_exit_status(client, final_status))

    summary = f"job {receipt.id}: {receipt.tasks} task{'s' * (receipt.tasks != 1)}; volery job {receipt.id} shows it"
    if receipt.known:
        summary = f"job {receipt.id} was submitted before with the same key"

    print_answer(receipt.id, as_json, summary)


def _keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a job that options state, by the names of the options.

    Raises:
        InputError: naming an option whose value is none.
    """
    from volery.live.scripts import array_tasks

    names = {option: key for key, option in OPTIONS.items()}
    plain = ("name", "constraint", "timeout", "grace", "estimate", "outputs", "key", "user")
    keys = {names.get(option, option): options[option] for option in plain}
    if options["array"] is not None:
        keys["tasks"] = array_tasks(options["array"], "--array")
    if options["cwd"] is not None:
        keys["cwd"] = str(Path(options["cwd"]).absolute())
    keys |= {"env": _variables(options["env"] or ()), "request": _amounts(options)}
    return {key: value for key, value in keys.items() if value is not None and value not in ([], {})}


def _amounts(options: Mapping[str, Any]) -> dict[str, int]:
    from volery.live.jobs import CPU, GPUS, MEMORY
    from volery.live.scripts import memory_mb

    request = dict[str, int]()
    for entry in options["request"] or ():
        name, _, number = entry.partition("=")
        if not (name and number.isascii() and number.isdigit() and len(number) < 19):
            raise InputError("--request", f"{entry[:80]!r} is not NAME=N, as cpu_milli=500")
        request[name] = int(number)

    if (cpus := options["cpus"]) is not None:
        if not 0 <= cpus < 1e12:
            raise InputError("--cpus", f"{cpus} is no number of processors; write it as 2 or 0.5")
        request[CPU] = round(cpus * 1000)
    if options["memory"] is not None:
        request[MEMORY] = memory_mb(options["memory"], "--memory")
    if options["gpus"] is not None:
        request[GPUS] = options["gpus"]
    return request


def _variables(entries: Iterable[str]) -> dict[str, str]:
    env = dict[str, str]()
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals and name not in os.environ:
            raise InputError("--env", f"{name[:80]!r} is not set here; write it as NAME=VALUE")
        env[name] = value if equals else os.environ[name]
    return env


def _option_of(key: str) -> str:
    """The option that states a key of a job, or an amount of its request."""
    return f"--{OPTIONS.get(key, key)}"


class _Submission:
    """A job as words of a command line, and keys that options state, describe it.

    Attributes:
        notes: sentences on what a script asks for and does not get.
    """

    def __init__(self, words: list[str], stated: dict[str, Any]) -> None:
        if not words or words == ["--"]:
            raise InputError("JOB", "is missing; give a job's file, a script, or -- and a command")
        self._words = words
        self._stated = stated
        self._is_file = words[0] != "--" and _script(words[0]) is None
        # What names the rest of a job in errors; and key -> the option or line that states it.
        self._place = "COMMAND" if words[0] == "--" else Path(words[0]).name
        self._origins = {key: _option_of(key) for key in (*stated, *stated.get("request", ()))}
        if "request" in stated:
            self._origins["request"] = ", ".join(map(self._origins.__getitem__, stated["request"]))
        self.notes = list[str]()

    @contextmanager
    def named_by_origin(self) -> Iterator[None]:
        """Name what is wrong by the option, line or file that it comes from: the API knows a job by its content alone.

        Raises:
            InputError: as it was, with another place.
        """
        try:
            yield
        except InputError as error:
            match = re.fullmatch(rf"(?:{re.escape(self._place)}|job)((?:\.(\w+)(?:\.([\w-]+))?)?.*)", error.place)
            if match is None or (match[1] and match[1][0] not in ".["):
                raise
            path, key, name = match.groups()
            origin = self._origins.get(name or "") or self._origins.get(key or "")
            if not (origin or self._is_file):
                origin = self._place if key in (None, "command", "stdin") else _option_of(key)
            raise InputError(origin or self._place + path, error.problem) from None

    def description(self, client: Client | None) -> JobDescription:
        """The job; Slurm's lines of a script need a client, which knows what machines offer.

        Raises:
            InputError: it is wrong somewhere.
        """
        from volery.live.jobs import job_from_table, read_job

        if self._words[0] == "--":
            return job_from_table({"command": self._words[1:]} | self._stated, "job")
        if (script := _script(self._words[0])) is not None:
            return job_from_table(self._of_script(script, client), "job")

        path = Path(self._words[0])
        if len(self._words) > 1 or path.suffix == ".sh" or not (path.exists() or path.suffix):
            words = " ".join(self._words)[:80]
            raise InputError(
                self._place, f"is no script, which begins with #!; a command is `volery submit -- {words}`"
            )
        return read_job(path, self._stated)

    def _of_script(self, script: Script, client: Client | None) -> dict[str, Any]:
        from volery.live.jobs import with_keys
        from volery.live.scripts import on_offer, slurm_head

        keys: Mapping[str, Any] = {"name": self._place}
        if script.slurm:
            assert client is not None
            head = slurm_head(script.slurm, self._place, os.environ)
            on_offer(head, {name for node in client.nodes() for name in node.offers})
            keys = head.keys
            self._origins = head.places | self._origins
            self.notes += head.notes
            if "cwd" not in keys | self._stated:
                self.notes.append(f"{self._place}: runs in a new folder, not in this one; --cwd . or --chdir names it")

        own = {"command": script.command(self._place, self._words[1:]), "stdin": script.text}
        return with_keys(keys, self._stated) | own


def _watch(client: Client, number: int, silent: bool) -> JobStatus:
    from volery.live.status import JobStatus

    status = client.job(number)

    with OneLine(silent) as line:
        for change in itertools.chain((status,), client.events(number)):
            if isinstance(change, JobStatus):
                status = change
                ended_tasks = status.finished + status.failed + status.killed + status.unsatisfiable
                state = f"{ended_tasks}/{status.tasks} tasks, {state_words(status)}"
                line.moved(f"job {number}", ended_tasks, max(status.tasks, 1), state)
    return status if status.ended else client.job(number)


def _exit_status(client: Client, status: JobStatus) -> int:
    """0 if all is well, otherwise the largest exit code of a task, and 1 where none has one."""
    if status.state == "done":
        return 0
    return max(1, max((task.exit_code or 0 for task in client.tasks(status.id)), default=1))
