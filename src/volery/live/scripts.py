"""Scripts as jobs: options at their head, Slurm's among them, and the command that runs a script on a node.

A script travels as the standard input of its task, whose node may not have the file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from volery.core.errors import InputError
from volery.live.command import INDEX_VARIABLE, JOB_VARIABLE
from volery.live.config.foreign_keys import answer_to
from volery.live.jobs import CPU, GPUS, LISTED_MAX, MEMORY, STDIN_MAX, TASKS_MAX

START: Final = 'exec 3<&0 </dev/null; exec "$@"'
"""The line that gives a script, which comes as standard input, a path; its own standard input is empty."""
SLURM_NUMBERS: Final = (
    f"export SLURM_JOB_ID=${JOB_VARIABLE} SLURM_ARRAY_JOB_ID=${JOB_VARIABLE} SLURM_ARRAY_TASK_ID=${INDEX_VARIABLE}; "
)
PATH: Final = "/dev/fd/3"
MIB: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
"""Units of memory -> their size in 2^20 bytes."""
_LINE: Final = re.compile(r"#(VOLERY|SBATCH)\s+(.*)")
_SPAN: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_TIME: Final = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,6}))?(?::(\d{1,6}))?", re.ASCII)


class HeadLine(NamedTuple):
    """A line of options at the head of a script: its place, as `run.sh:3`, and its words."""

    place: str
    words: list[str]


class Script(NamedTuple):
    """A script: its text, its interpreter, and its lines of options, ours and Slurm's."""

    text: str
    interpreter: tuple[str, ...]
    options: list[HeadLine]
    slurm: list[HeadLine]

    def command(self, name: str, arguments: Iterable[str]) -> tuple[str, ...]:
        """The command of a task that runs the script, whose text is its standard input."""
        start = (SLURM_NUMBERS if self.slurm else "") + START
        return ("sh", "-c", start, name, *self.interpreter, PATH, *arguments)


def script_in(path: Path) -> Script | None:
    """The script in a file; None where the file does not begin with `#!`, or cannot be read.

    Raises:
        InputError: it is a script, but no UTF-8 text, or too long, or names no interpreter, or a quote stays open.
    """
    try:
        content = path.read_bytes()
    except OSError:  # whoever reads it as the file of a job says why
        return None
    if not content.startswith(b"#!"):
        return None

    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(path.name, f"is not UTF-8 text: {error.reason}") from None
    if len(text) > STDIN_MAX:
        problem = f"has {len(text):,} characters, more than {STDIN_MAX:,} that travel with a job"
        raise InputError(path.name, f"{problem}; submit a command, `-- PATH`, with a path that nodes see")

    lines = text.splitlines()
    # As the kernel reads it: all after the interpreter is one argument.
    interpreter = lines[0].removeprefix("#!").split(maxsplit=1)
    if not interpreter:
        raise InputError(f"{path.name}:1", "names no interpreter; write it as #!/bin/sh")

    head: dict[str, list[HeadLine]] = {"VOLERY": [], "SBATCH": []}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            break
        if match := _LINE.fullmatch(line):
            place = f"{path.name}:{number}"
            try:
                head[match[1]].append(HeadLine(place, shlex.split(match[2], comments=True)))
            except ValueError as error:
                raise InputError(place, f"cannot be read: {str(error).lower()}; close the quote") from None
    return Script(text, tuple(word.rstrip() for word in interpreter), head["VOLERY"], head["SBATCH"])


def array_tasks(text: str, place: str) -> int | list[dict[str, Any]]:
    """The tasks of an array, as the key `tasks` of a job: a number where its indices are 0, 1, 2, otherwise a list.

    Args:
        text: indices, as `0-99`, `0-99:2` or `1,3,5-7`.

    Raises:
        InputError: it is none, has an index twice or too many, or limits how many tasks run at once.
    """
    if "%" in text:
        problem = f"{text[:80]!r} limits how many tasks run at once, which no scheduler here can do"
        raise InputError(place, f"{problem}; write {text.partition('%')[0][:80]}")

    spans = list[range]()
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        first, last, step = (int(group or 0) for group in match.groups()) if match else (1, 0, 1)
        last = last if match and match[2] else first
        if match is None or last < first or match[3] == "0":
            raise InputError(place, f"{part[:80]!r} is no array; write indices as 0-99, 0-99:2 or 1,3,5-7")
        spans.append(range(first, last + 1, step or 1))

    count = sum(map(len, spans))
    entries = sum(1 if span.step == 1 else len(span) for span in spans)
    if count > TASKS_MAX or entries > LISTED_MAX:
        most = f"{TASKS_MAX:,}, and {LISTED_MAX:,} that do not follow each other"
        raise InputError(place, f"{text[:80]!r} has {count:,} tasks; an array has at most {most}")
    if len(spans) > 1 and len(set().union(*spans)) < count:
        raise InputError(place, f"{text[:80]!r} has an index twice; leave one out")
    if spans == [range(count)]:
        return count
    # One entry stands for indices that follow each other.
    runs = [run for span in spans for run in ([span] if span.step == 1 else [range(at, at + 1) for at in span])]
    return [{"index": run.start, "count": len(run)} for run in runs]


def memory_mb(text: str, place: str) -> int:
    """An amount of memory in units of 2^20 bytes, rounded up; a number without a unit is in these.

    Raises:
        InputError: it is none.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InputError(place, f"{text[:80]!r} is no amount of memory; write it as 512M or 4G")
    return -int(-float(match[1]) * MIB[match[2].upper() or "M"] // 1)


class SlurmHead(NamedTuple):
    """The lines of Slurm's options at the head of a script, as keys of a job.

    Args:
        keys: keys of a job.
        places: key, or name of an amount -> the line and option that it comes from.
        notes: what was not understood, or has no meaning here: a sentence with its place each.
    """

    keys: dict[str, Any]
    places: dict[str, str]
    notes: list[str]


SHORT: Final = {
    "J": "job-name", "a": "array", "n": "ntasks", "c": "cpus-per-task", "t": "time", "D": "chdir", "N": "nodes",
    "p": "partition", "d": "dependency", "o": "output", "e": "error", "A": "account", "G": "gpus", "C": "constraint",
    "w": "nodelist", "x": "exclude", "q": "qos", "i": "input", "b": "begin", "L": "licenses", "M": "clusters",
    "m": "distribution", "F": "nodefile", "B": "extra-node-info", "S": "core-spec", "H": "hold", "Q": "quiet",
    "v": "verbose", "O": "overcommit", "s": "oversubscribe", "k": "no-kill", "W": "wait",
}  # fmt: skip
"""Slurm's letters -> its options."""
BARE: Final = frozenset(
    {"hold", "quiet", "verbose", "overcommit", "oversubscribe", "no-kill", "exclusive", "contiguous", "requeue"}
    | {"no-requeue", "parsable", "wait", "spread-job", "use-min-nodes", "ignore-pbs", "reboot", "test-only"}
)
"""Slurm's options that stand alone, or whose value follows `=` only."""
MACHINES: Final = "says which machines the job may have; write it as #VOLERY --constraint, and delete this line"
REFUSED: Final = {
    "nodes": "a task runs on one machine here; submit an array, or a job for each machine",
    "ntasks-per-node": "a task is one process here; submit an array",
    "dependency": answer_to("dependency"),
    "begin": answer_to("begin"),
    "hold": answer_to("begin"),
    "input": "the standard input of a script is empty here; read the file in the script",
    "container": answer_to("container"),
    "wrap": "a script has its commands itself; delete this line",
    **dict.fromkeys(("constraint", "nodelist", "nodefile", "exclude"), MACHINES),
}
"""Slurm's options that change what runs, and have no like here -> the reason and the way round."""
SAME: Final = frozenset({"requeue", "quiet", "verbose", "parsable"})
"""Slurm's options that ask for what happens anyway."""


def slurm_head(lines: Sequence[HeadLine], name: str, environment: Mapping[str, str]) -> SlurmHead:
    """The keys of a job that lines of Slurm's options state, where they mean the same; see `man sbatch`.

    Args:
        name: name of the script.
        environment: variables of whoever submits, for `--export`.

    Raises:
        InputError: with its line, an option that changes what runs and cannot be heeded, or a wrong value.
    """
    head = SlurmHead({"name": name}, {}, [])
    keys, places, notes = head
    request, env = dict[str, int](), {"SLURM_SUBMIT_DIR": str(Path.cwd())}
    cpus, mb_per_cpu = 1, 0

    for option, (value, place) in _slurm_options(lines).items():
        key = ""
        match option:
            case "job-name":
                key, keys["name"] = "name", value
            case "array":
                key, keys["tasks"] = "tasks", array_tasks(value, place)
            case "chdir":
                key, keys["cwd"] = "cwd", str(Path(value).absolute())
            case "time":
                key, keys["timeout_s"] = "timeout_s", slurm_seconds(value, place)
            case "export":
                notes += _exported(value, place, environment, env)
            case "ntasks" | "cpus-per-task":
                cpus *= _count(value, place)
                key, request[CPU] = CPU, cpus * 1000
                env["SLURM_" + option.replace("-", "_").upper()] = value
            case "mem":
                key, request[MEMORY] = MEMORY, memory_mb(value, place)
            case "mem-per-cpu":
                key, mb_per_cpu = MEMORY, memory_mb(value, place)
            case "gpus" | "gpus-per-node" | "gpus-per-task" | "gres" if _gpus(option, value):
                kind, _, count = _gpus(option, value).rpartition(":")
                key, request[GPUS] = GPUS, _count(count, place)
                if kind:
                    notes.append(f'{place}: {kind!r} is left out; #VOLERY --constraint names a model, as gpu == ".."')
            case "nodes" | "ntasks-per-node" if value == "1":
                pass
            case _ if option in REFUSED:
                raise InputError(place, REFUSED[option])
            case _ if option not in SAME:
                notes.append(f"{place}: is left out; {answer_to(option) or 'it has no meaning here'}")
        if key:
            places[key] = place

    if mb_per_cpu:
        request.setdefault(MEMORY, mb_per_cpu * cpus)
    env["SLURM_JOB_NAME"] = keys["name"]
    keys |= {"env": env, "request": request}
    return head


def _slurm_options(lines: Sequence[HeadLine]) -> dict[str, tuple[str, str]]:
    """Slurm's options by their long names: value, and place with the name; the last one of a name counts."""
    options = dict[str, tuple[str, str]]()
    for line in lines:
        words = iter(line.words)
        for word in words:
            if word.startswith("-") and not word.startswith("--"):
                name, equals, value = SHORT.get(word[1:2], word), word[2:], word[2:]
            else:
                name, equals, value = word.removeprefix("--").partition("=")
            if word.startswith("-") and not equals and name not in BARE:
                value = next(words, "")
                if not value:
                    raise InputError(f"{line.place}: {word}", "has no value; write it as --name=value")
            options[name] = value, f"{line.place}: {word if name == word else f'--{name}'}"
    return options


def _exported(value: str, place: str, environment: Mapping[str, str], env: dict[str, str]) -> Iterator[str]:
    """Add the variables that `--export` names to those of a job; notes on the others."""
    for part in value.split(","):
        name, equals, content = part.partition("=")
        if equals:
            env[name] = content
        elif part == "ALL":
            yield f"{place}: ALL is left out: tasks get the variables of their node; name those that they need"
        elif name in environment:
            env[name] = environment[name]
        elif part not in ("NONE", "NIL"):
            yield f"{place}: {name!r} is left out; it is not set here"


def _count(value: str, place: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 7 and int(value)):
        raise InputError(place, f"{value[:80]!r} is no number of them; write 1 or more")
    return int(value)


def _gpus(option: str, value: str) -> str:
    """The `[model:]number` of GPUs that an option asks for; empty where it asks for other devices."""
    if option != "gres":
        return value
    device, colon, count = value.removeprefix("gres:").removeprefix("gres/").partition(":")
    if device != "gpu" or "," in value:
        return ""
    return (count if count.rpartition(":")[2].isdigit() else f"{count}:1") if colon else "1"


def slurm_seconds(text: str, place: str) -> float:
    """The seconds of a limit as Slurm writes it: minutes, minutes:seconds, days-hours:minutes:seconds; 0: none.

    Raises:
        InputError: it is none.
    """
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return 0.0
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(place, f"{text[:80]!r} is no time; write minutes, hours:minutes:seconds or days-hours")

    parts = [int(group) for group in match.groups()[1:] if group is not None]
    if match[1] is not None:  # days-hours, and what follows
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return float(int(match[1]) * 86_400 + hours * 3600 + minutes * 60 + seconds)
    hours, minutes, seconds = (0, *parts, 0)[:3] if len(parts) < 3 else parts
    return float(hours * 3600 + minutes * 60 + seconds)


def on_offer(head: SlurmHead, offers: Collection[str]) -> None:
    """Leave out the amounts that no machine offers, with a note on each; a processor is the least, as under Slurm.

    Args:
        offers: names of the amounts that machines offer; none: they have slots.
    """
    request = head.keys["request"]
    if CPU in offers:
        request.setdefault(CPU, 1000)
    for name in [name for name in request if name not in offers]:
        amount = request.pop(name)
        if offers or (name, amount) != (CPU, 1000):  # which is a slot
            reason = (
                "no machine offers it" if offers else "machines have slots here, and nothing is counted beside them"
            )
            head.notes.append(f"{head.places[name]}: is left out; {reason}")
