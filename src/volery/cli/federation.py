"""`volery up`, `serve`, `replay` and `discover`: a federation or one host of it, its journals, and this machine.

`volery serve results` shows a results folder instead; no host may have that name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from typer.core import TyperGroup

from volery.cli.options import AsJson, JournalFolder, NodeSlots, Scheduler, argument, option
from volery.cli.output import PipeClosedError, live_extra, print_json, print_table
from volery.cli.results import browse
from volery.core.errors import InputError
from volery.live.status import DEFAULT_PORT
from volery.setting import option_of

if TYPE_CHECKING:
    from rich.text import Text

    from volery.live.assembly import LiveHost
    from volery.live.runtime.replay import Replayed

LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines as JSON objects.")]
GiveUpJobs = Annotated[
    bool,
    typer.Option("--give-up-jobs", help="Start with an older or empty store; jobs and ends that it lacks are lost."),
]
CLUSTER_PARAMETERS = ("lms", "groups")
GM_PARAMETERS = ("gms", "distributors")
OPEN_API = "  (no tokens: whoever uses this machine may do everything; volery token add)"
DEFAULT_API = f"127.0.0.1:{DEFAULT_PORT}"
USUAL_CLUSTERS = 3
USUAL_GMS = 2
IN_FILE = {
    "architecture": "architecture",
    "clusters": "[parameters]",
    "nodes": "count of [[machines]]",
    "slots": "slots of [[machines]]",
    "amounts": "capacity of [[machines]]",
    "gms": "[parameters]",
    "api": "api",
    "folder": "folder",
    "run_as": "run_as",
    "calls": "calls",
}
"""Options of `up` -> where the federation's file says the same."""
RESERVED_SHARE = 10
"""Pigeon reserves 9 of 100 workers; the groups of a small federation are smaller."""

log = logging.getLogger(__name__)


def up(
    context: typer.Context,
    config: Annotated[Path | None, argument("The federation; the options make one.", "[FEDERATION.toml]")] = None,
    architecture: Scheduler = "megha",
    clusters: Annotated[
        int | None, option("Clusters: Megha's Local Masters, Pigeon's groups; 3, or one per node.", min=1)
    ] = None,
    nodes: Annotated[
        int | None, option("Nodes on this machine; by default one slot per processor in all.", min=1)
    ] = None,
    slots: NodeSlots = 1,
    amounts: Annotated[
        bool, typer.Option("--amounts", help="Nodes offer parts of this machine instead of slots: CPUs, memory, GPUs.")
    ] = False,
    gms: Annotated[
        int | None, option("Megha's Global Masters, Pigeon's distributors; 2 where nodes suffice.", min=1)
    ] = None,
    api: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the API listens.")] = DEFAULT_API,
    folder: Annotated[Path, typer.Option("-o", "--folder", help="For jobs, output and journals.")] = Path("federation"),
    run_as: Annotated[str, typer.Option(metavar="ACCOUNT", help="Whom tasks run as, where this is root.")] = "",
    calls: Annotated[
        bool, typer.Option("--calls/--no-calls", help="Tasks may be Python calls, which --run-as must be able to run.")
    ] = True,
    give_up_jobs: GiveUpJobs = False,
    log_json: LogJson = False,
    as_json: AsJson = False,
) -> None:
    """Run a whole federation in this process, until Ctrl-C; what was submitted before goes on."""
    from volery.architectures import choose
    from volery.live.config.federation import ALL, FederationFile, read_federation, resolve

    if config is not None:
        _refuse_beside_file(context)
        federation = read_federation(config, choose)
    else:
        nodes, clusters, gms = usual_sizes(slots, nodes, clusters, gms)
        parameters = sizes_of(architecture, clusters, gms, nodes)
        machines: list[dict[str, Any]] = [{"count": nodes} | ({"capacity": "auto"} if amounts else {"slots": slots})]
        file = FederationFile(
            machines=machines,
            architecture=architecture,
            parameters=parameters,
            folder=str(folder),
            api=api,
            run_as=run_as,
            calls=calls,
        )
        federation = resolve(file, Path(), choose)
    run_host(federation, ALL, as_json, log_json, give_up_jobs)


def _refuse_beside_file(context: typer.Context) -> None:
    """Raise InputError for the first option of `up` that stands in the federation's file, where there is one."""
    for name, stands in IN_FILE.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(
                option_of(name), f"is for a federation without a file; write {stands} into the file instead"
            )


def usual_sizes(slots: int, nodes: int | None, clusters: int | None, gms: int | None) -> tuple[int, int, int]:
    """Nodes, clusters and Global Masters as they are given, else as this machine has processors for tasks."""
    from volery.live.config.machine import MILLI, usable_cpu_milli

    # Each Global Master has a partition of at least one node in each cluster.
    nodes = nodes or max(usable_cpu_milli() // MILLI // slots, (clusters or 1) * (gms or 1))
    clusters = clusters or max(min(USUAL_CLUSTERS, nodes // (gms or 1)), 1)
    return nodes, clusters, gms or max(min(USUAL_GMS, nodes // clusters), 1)


def sizes_of(architecture: str, clusters: int, gms: int, nodes: int) -> dict[str, Any]:
    """The parameters that say how many; a design that has no such thing goes without."""
    from volery.architectures import lookup

    field_names = lookup(architecture).defaults.__struct_fields__
    sizes: dict[str, Any] = {}

    for names, value in ((CLUSTER_PARAMETERS, clusters), (GM_PARAMETERS, gms)):
        sizes |= {name: value for name in names if name in field_names}

    if "reserved" in field_names:
        sizes["reserved"] = nodes // clusters // RESERVED_SHARE
    return sizes


def run_host(federation: Any, name: str, as_json: bool, log_json: bool, give_up_jobs: bool = False) -> None:
    """Run one host of a federation in this process until Ctrl-C.

    Raises:
        InputError: there is no such host, or what it needs is not there.
    """
    with live_extra():
        from volery.live.assembly import serve
        from volery.live.clock import run_loop
        from volery.live.runtime.host import Superseded
    from volery.live.clock import JsonLines, PlainLines

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(name) if log_json else PlainLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO)

    def tell(running: LiveHost) -> None:
        try:
            _print_host(running, federation, name, as_json)
        except (InputError, PipeClosedError) as error:  # a host is at work also where nobody reads that it is
            log.warning("the address of the API could not be printed: %s", error)

    try:
        run_loop(serve(federation, name, tell, give_up_jobs))
    except (OSError, Superseded) as error:
        raise InputError(f"host {name}", f"has stopped: {error}; start it again once that is mended") from error

    log.info("host %s has ended", name)


def _print_host(running: LiveHost, federation: Any, name: str, as_json: bool) -> None:
    url = running.front.url if running.front is not None else ""
    closed = running.front is not None and not running.front.open_to_all
    if as_json:
        folder = str(federation.folder)
        print_json({"host": name, "api": url, "tokens": closed, "journal": running.journal, "folder": folder})
        return

    plan, cluster = federation.plan, federation.plan.cluster
    offered = f"amounts of {', '.join(cluster.resources)}" if cluster.resources else f"{cluster.slot_count} slots"
    typer.echo(f"{plan.architecture.name}: {len(cluster.slots)} nodes, {offered}")

    if url:
        typer.echo(f"api:     {url}" + ("" if closed else OPEN_API))
    if running.journal:
        typer.echo(f"journal: {running.journal}")
    typer.echo(f"host {name} is at work; Ctrl-C ends it")


def replay(
    place: JournalFolder,
    as_json: AsJson = False,
) -> None:
    """Feed journals to fresh components and demand equal effects; status 1 where one differs or is damaged.

    Journals of other versions are left out and listed.
    """
    from volery.architectures import lookup
    from volery.live.runtime.replay import journals, replay_all

    results = list(replay_all(journals(place), lookup))
    if as_json:
        print_json(results)
    else:
        _print_replays(results)
    if not all(result.is_proved for result in results):
        raise typer.Exit(1)


def _print_replays(results: list[Replayed]) -> None:
    rows = []
    for result in results:
        figures = f"{result.events:,}", f"{result.span_us / 1e6:.3f}", str(result.torn_bytes)
        rows.append((Path(result.path).name, result.architecture, *figures, _verdict(result)))
    print_table(("journal", "architecture", "events", "seconds", "torn bytes", "verdict"), rows, title="Journals")

    for result in results:
        if result.left_out:
            typer.echo(f"{result.path} is left out: {result.left_out}")
        if result.damage:
            typer.echo(f"{result.path}: {result.damage}")
        elif not result.architecture and not result.left_out:
            typer.echo(f"{result.path} holds no complete header: its host ended before it began")
        elif result.torn_bytes:
            typer.echo(f"{result.path}: the last record is incomplete, as a crash leaves it; {result.torn_bytes} bytes")
        if (difference := result.difference) is not None:
            typer.echo(f"{result.path}: event {difference.place}, at {difference.now_us} us: {difference.problem}")
            typer.echo(f"  {difference.address} was handed {difference.event} by {difference.source}")
            for effect in difference.effects:
                typer.echo(f"  and asks now for {effect}")

    _print_gaps(results)
    typer.echo(f"{_outcome(results)}.")


def _verdict(result: Replayed) -> Text:
    from rich.text import Text

    if result.left_out:
        return Text("left out", "yellow")
    if result.damage:
        return Text("DAMAGED", "bold red")
    if result.difference is not None:
        return Text("DIFFERS", "bold red")
    return Text("replays", "green") if result.architecture else Text("not begun", "yellow")


def _print_gaps(results: list[Replayed]) -> None:
    """Print which files of an incarnation are not here."""
    expected_segment: dict[tuple[str, int], int] = {}
    for result in (result for result in results if result.architecture and not result.left_out):
        key = result.host, result.incarnation

        expected = expected_segment.get(key, 0)
        missing = result.segment - expected

        if missing > 0 and not expected:
            typer.echo(f"{key[0]}-{key[1]}: {missing} earlier files are not here; it is replayed from a snapshot.")
        elif missing > 0:
            typer.echo(f"{key[0]}-{key[1]}: {missing} files before {Path(result.path).name} are not here.")

        expected_segment[key] = result.segment + 1


def _outcome(results: list[Replayed]) -> str:
    judged = [result for result in results if result.damage or (result.architecture and not result.left_out)]
    damaged = sum(bool(result.damage) for result in judged)
    different = sum(result.difference is not None and not result.damage for result in judged)
    left_out = sum(bool(result.left_out) for result in results)

    problems = [f"{different} of {len(judged)} journals differ"] if different else []
    problems += [f"{damaged} of {len(judged)} journals are damaged, and not proved"] if damaged else []

    outcome = ", ".join(problems) or f"All {len(judged)} journals replay"
    return f"{outcome}; {left_out} of another version are left out" if left_out else outcome


def discover(
    folder: Annotated[Path, typer.Option("-o", "--folder", help="Where tasks will run.")] = Path("federation"),
    as_json: AsJson = False,
) -> None:
    """Print this machine and its resources as a table "machines" for a federation's file."""
    from volery.live.config import machine
    from volery.live.node.confinement import permitted

    described = machine.discover(folder=folder)
    capacity = machine.amounts(folder)
    disk = machine.disk_of(folder)
    gpus = machine.installed_gpus()
    groups = permitted()

    if as_json:
        content = {"machine": msgspec.to_builtins(described), "capacity": capacity, "control_groups": groups}
        print_json(content | {"gpus": [gpu._asdict() for gpu in gpus], "disk": disk._asdict()})
        return

    typer.echo("[[machines]]")
    for name in machine.ATTRIBUTES:
        value = getattr(described, name)
        typer.echo(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}")
    typer.echo(f"capacity = {{ {', '.join(f'{name} = {amount}' for name, amount in capacity.items())} }}")

    typer.echo(f"# disk of {folder}: {disk.kind}, {disk.free_mb:,} of {disk.size_mb:,} MB free")
    for gpu in gpus:
        typer.echo(f"# GPU {gpu.name}: {gpu.model}")

    typer.echo(f"# {groups}")


HOST, RESULTS = "HOST", "results"
OF_HOSTS: Final = ("-c", "--config", "--log-json", "--give-up-jobs")
OF_RESULTS: Final = ("--port", "--host")
WITH_VALUE: Final = ("-c", "--config", "--port", "--host")


class HostsAndResults(TyperGroup):
    """Every word but `results` is the name of a host; options may stand before it, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name first, where a group looks for its command."""
        arguments: list[str] = super().parse_args(ctx, name_first(args))
        return arguments

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command that shows results, or that runs a host."""
        return super().get_command(ctx, cmd_name if cmd_name == RESULTS else HOST)


def name_first(words: Sequence[str]) -> list[str]:
    """The words of a command line with the name before its options.

    Raises:
        InputError: there are options without a name, or options of the other use of `serve`.
    """
    option_names = [word.partition("=")[0] for word in words]
    word_before = ["", *words]
    name_at = next((n for n, word in enumerate(words) if word[:1] != "-" and word_before[n] not in WITH_VALUE), None)
    if name_at is None:
        if words and "--help" not in words:
            raise InputError("HOST", "is missing: volery serve HOST -c FEDERATION.toml, or volery serve results DIR")
        return list(words)

    name = words[name_at]
    if not name:
        raise InputError("HOST", "is empty; it is a name of the federation's file, or a role such as node")

    for word in option_names:
        if name == RESULTS and word in OF_HOSTS:
            raise InputError(
                word, "is for a host of a federation, which cannot be called results: volery serve HOST -c FILE"
            )
        if name != RESULTS and word in OF_RESULTS:
            raise InputError(word, "is for volery serve results DIR; where a host listens stands in its file")

    if name != RESULTS and not {"-c", "--config", "--help"} & set(option_names) and Path(name).is_dir():
        raise InputError(name, f"is a folder; its results are shown by: volery serve results {name}")

    return [name, *words[:name_at], *words[name_at + 1 :]]


serve_app = typer.Typer(
    cls=HostsAndResults,
    help="Run one host of a federation, by its name, or show a results folder in a browser.",
    no_args_is_help=True,
    subcommand_metavar="HOST -c FEDERATION.toml | results DIR",
)


@serve_app.command(HOST)
def host(
    context: typer.Context,
    config: Annotated[Path, option("The federation.", "-c", "--config", form="FEDERATION.toml")],
    give_up_jobs: GiveUpJobs = False,
    log_json: LogJson = False,
    as_json: AsJson = False,
) -> None:
    """Run one host of a federation in this process, connected to the others by NATS, until Ctrl-C.

    HOST is a role, api, or a name from the file.
    """
    from volery.architectures import choose
    from volery.live.config.federation import read_federation

    run_host(read_federation(config, choose), str(context.info_name), as_json, log_json, give_up_jobs)


serve_app.command(RESULTS)(browse)
