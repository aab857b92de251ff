"""`volery`: the commands, and the statuses with which they end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import typer

import volery
from volery.cli.calibrate import calibrate
from volery.cli.compare import compare, demo, run, with_setting
from volery.cli.designs import flow, policy_app, show_architectures, show_stages
from volery.cli.federation import discover, replay, serve_app, up
from volery.cli.fidelity import fidelity
from volery.cli.jobs import job, jobs, record_app
from volery.cli.load import load
from volery.cli.logs import logs
from volery.cli.operations import drain, hosts, nodes, token_app, undrain, users_app
from volery.cli.orders import cancel, resubmit, wait
from volery.cli.output import INTERRUPTED, LEFT_OUT, STANDARD_OUTPUT, PipeClosedError, guarded_streams, print_error
from volery.cli.plan import plan
from volery.cli.results import browse, check, export, report, show, timeline, verify
from volery.cli.storm import storm
from volery.cli.strl import strl
from volery.cli.submit import SubmitCommand, submit
from volery.cli.theory import show_theory
from volery.cli.trace import trace_app
from volery.cli.watch import watch
from volery.cli.why import why
from volery.core.errors import InputError

COMPARISONS, RUNS, DESIGNS = "Comparisons", "Single runs", "Designs and workloads"
FEDERATION, TRUST = "The federation", "Trust"

app = typer.Typer(
    name="volery",
    help="A laboratory for datacenter schedulers: run architectures on one workload, and see which is better.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("compare", rich_help_panel=COMPARISONS)(compare)
app.command("run", rich_help_panel=COMPARISONS)(run)
app.command("show", rich_help_panel=COMPARISONS)(show)
app.command("report", rich_help_panel=COMPARISONS)(report)
app.command("export", rich_help_panel=COMPARISONS)(export)
app.command("browse", rich_help_panel=COMPARISONS)(browse)
app.command("fidelity", rich_help_panel=COMPARISONS)(with_setting(fidelity))
app.command("demo", rich_help_panel=COMPARISONS)(demo)
app.command("timeline", rich_help_panel=RUNS)(timeline)
app.command("watch", rich_help_panel=RUNS)(watch)
app.command("why", rich_help_panel=RUNS)(why)
app.add_typer(trace_app, name="trace", rich_help_panel=DESIGNS)
app.command("architectures", rich_help_panel=DESIGNS)(show_architectures)
app.command("flow", rich_help_panel=DESIGNS)(flow)
app.command("stages", rich_help_panel=DESIGNS)(show_stages)
app.add_typer(policy_app, name="policy", rich_help_panel=DESIGNS)
app.command("theory", rich_help_panel=DESIGNS)(show_theory)
app.command("strl", rich_help_panel=DESIGNS)(strl)
app.command("up", rich_help_panel=FEDERATION)(up)
app.add_typer(serve_app, name="serve", rich_help_panel=FEDERATION)
app.command("discover", rich_help_panel=FEDERATION)(discover)
app.command("submit", cls=SubmitCommand, rich_help_panel=FEDERATION)(submit)
app.command("plan", rich_help_panel=FEDERATION)(plan)
app.command("jobs", rich_help_panel=FEDERATION)(jobs)
app.command("job", rich_help_panel=FEDERATION)(job)
app.command("logs", rich_help_panel=FEDERATION)(logs)
app.command("wait", rich_help_panel=FEDERATION)(wait)
app.command("cancel", rich_help_panel=FEDERATION)(cancel)
app.command("resubmit", rich_help_panel=FEDERATION)(resubmit)
app.command("hosts", rich_help_panel=FEDERATION)(hosts)
app.command("nodes", rich_help_panel=FEDERATION)(nodes)
app.command("drain", rich_help_panel=FEDERATION)(drain)
app.command("undrain", rich_help_panel=FEDERATION)(undrain)
app.add_typer(users_app, name="users", rich_help_panel=FEDERATION)
app.add_typer(token_app, name="token", rich_help_panel=FEDERATION)
app.add_typer(record_app, name="record", rich_help_panel=FEDERATION)
app.command("load", rich_help_panel=FEDERATION)(load)
app.command("calibrate", rich_help_panel=FEDERATION)(calibrate)
app.command("verify", rich_help_panel=TRUST)(verify)
app.command("check", rich_help_panel=TRUST)(check)
app.command("replay", rich_help_panel=TRUST)(replay)
app.command("storm", rich_help_panel=TRUST)(storm)


PIPE_CLOSED: Final = 141
STATUSES: Final = {
    0: "all went well",
    1: "the answer is no: digests differ, a file is damaged, a check or a job failed, a run was lost",
    2: "what was given is wrong; the message names the place and the fix",
    LEFT_OUT: "`--strict` was given, and over 1 % of the jobs, tasks, waits or machine time of the work was omitted",
    INTERRUPTED: "Ctrl-C: what was finished is kept, and the same command goes on from there",
    PIPE_CLOSED: "whoever read the output has stopped",
}
"""The statuses with which commands end, and their meanings."""


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"volery {volery.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """A laboratory for datacenter schedulers: run architectures on one workload, and see which is better."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its status; errors that the user can mend come without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words

    try:
        with guarded_streams():
            try:
                app(args=words, prog_name="volery")
            except InputError as error:
                print_error(error.place, error.problem, as_json and error.place != STANDARD_OUTPUT)
                sys.exit(2)
            except RuntimeError as error:
                from volery.study import LostRunError

                if not isinstance(error, LostRunError):
                    raise
                print_error("run", str(error), as_json)
                sys.exit(1)

    except InputError as error:  # of the last piece of the output
        print_error(error.place, error.problem, as_json=False)
        sys.exit(2)
    except PipeClosedError:
        sys.exit(PIPE_CLOSED)

    sys.exit(0)


if __name__ == "__main__":
    main()
