"""Everything that a called function can do to its worker process."""

from __future__ import annotations

import asyncio
import ctypes
import decimal
import faulthandler
import gc
import io
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ANY_SYS: Any = sys
ANY_OS: Any = os
"""Modules of which a call may replace whatever it wants."""


# Forks, programs and threads.


def forks_and_returns() -> str:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return "parent" if child else "child"


def forks_and_raises() -> str:
    child = os.fork()
    if not child:
        raise ValueError("of the child")
    os.waitpid(child, 0)
    return "parent"


def forks_and_exits() -> str:
    child = os.fork()
    if not child:
        sys.exit(3)
    os.waitpid(child, 0)
    return "parent"


def forks_and_does_not_wait() -> str:
    return "parent" if os.fork() else "child"


def forks_without_python() -> str:
    child = ctypes.CDLL(None).fork()
    if child:
        os.waitpid(child, 0)
    return "parent" if child else "child"


def forks_as_it_is_pickled() -> Any:
    class Forks:
        def __reduce__(self) -> Any:
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            return (str, ("parent" if child else "child",))

    return Forks()


def prints_once() -> None:
    sys.stdout.write("once\n")


def leaves_garbage_that_forks(allocations: int) -> str:
    """Leave garbage that is collected after so many allocations more."""

    class Forks:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            os.fork()

    gc.collect()
    Forks()
    globals()["KEPT"] = [[] for _ in range(gc.get_threshold()[0] - allocations)]
    return "left"


class ForkingError(Exception):
    def __str__(self) -> str:
        return "of the child" if os.fork() == 0 else "of the parent"


def forks_as_its_text_is_read() -> NoReturn:
    raise ForkingError


def forks_as_its_output_is_written() -> str:
    class Forks(io.StringIO):
        def flush(self) -> None:
            os.fork()

    sys.stdout = Forks()
    return "parent"


def leaves_its_copy_behind() -> None:
    if os.fork():
        os._exit(7)
    time.sleep(60)


def becomes_another_program() -> None:
    os.execvp("sleep", ["sleep", "60"])


def leaves_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return "threads"


def leaves_a_pool() -> int:
    pool = ThreadPoolExecutor(3)
    globals()["KEPT"] = pool
    return pool.submit(abs, -3).result()


def exits_in_a_thread() -> str:
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()
    return "well"


def starts_processes() -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])


# Ends.


def returns() -> int:
    return 1


def raises() -> NoReturn:
    raise KeyError("missing")


def exits() -> NoReturn:
    sys.exit("with words")


def exits_at_once() -> NoReturn:
    os._exit(3)


def aborts() -> NoReturn:
    os.abort()


def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_group() -> None:
    os.killpg(0, signal.SIGTERM)
    time.sleep(60)


def is_interrupted() -> None:
    signal.raise_signal(signal.SIGINT)


def crashes() -> None:
    ctypes.string_at(0)


# Signals, timers, limits.


def sets_an_alarm() -> str:
    signal.alarm(1)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
    return "alarm"


def ignores_signals() -> str:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    return "ignored"


def handles_signals() -> str:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(8))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    return "handled"


def blocks_signals() -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD})
    return "blocked"


def handles_signals_below_python() -> str:
    faulthandler.register(signal.SIGUSR2)
    return "below"


def lowers_soft_limits() -> str:
    for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_STACK, resource.RLIMIT_CPU):
        resource.setrlimit(number, (20, resource.getrlimit(number)[1]))
    return "soft"


def lowers_hard_limits() -> str:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    return "hard"


def lowers_its_priority() -> int:
    return os.nice(3)


def gives_up_privileges() -> int:
    return int(ctypes.CDLL(None).prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS


def moves_to_one_processor() -> str:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return "moved"


# Descriptors and streams.


def descriptors() -> list[int]:
    return [number for entry in Path("/proc/self/fd").iterdir() if (number := int(entry.name)) > 2]


def closes_the_lowest_descriptors() -> str:
    os.closerange(0, 64)
    return "closed"


def closes_all_descriptors() -> str:
    os.closerange(0, 1 << 16)
    return "closed"


def covers_all_descriptors() -> str:
    for number in descriptors():
        os.dup2(1, number)
    return "covered"


def writes_to_all_descriptors() -> str:
    for number in descriptors():
        with suppress(OSError):
            os.write(number, b"x" * 9)
    return "written"


def leaves_files_open() -> int:
    globals()["OPEN"] = [open(os.devnull) for _ in range(100)]  # noqa: SIM115, PTH123 - that is the harm
    return len(globals()["OPEN"])


def closes_its_output() -> int:
    sys.stdout.close()
    sys.stderr.close()
    sys.stdin.close()
    return 41


def has_no_output() -> int:
    ANY_SYS.stdout = ANY_SYS.stderr = ANY_SYS.__stdout__ = None
    return 42


def replaces_its_output() -> int:
    sys.stdout = io.StringIO()
    ANY_SYS.stderr = ANY_SYS.__stderr__ = Path(os.devnull).open("w")  # noqa: SIM115 - that is the harm
    return 43


def detaches_its_output() -> int:
    ANY_SYS.stdout.detach()
    return 44


def encodes_its_output_otherwise() -> int:
    ANY_SYS.stdout.reconfigure(encoding="utf-16", errors="strict")
    return 45


def has_an_output_that_fails() -> int:
    class Fails(io.TextIOBase):
        def write(self, _: str) -> int:
            raise SystemExit("no output")

        def flush(self) -> None:
            raise KeyboardInterrupt

    ANY_SYS.stdout = ANY_SYS.stderr = Fails()
    return 46


def prints_much() -> int:
    for _ in range(40):
        sys.stdout.write("x" * (1 << 20))
    return 47


# Folders, variables, settings.


def changes_its_folder() -> str:
    os.chdir("/")
    return str(Path.cwd())


def removes_its_folder() -> str:
    Path.cwd().rmdir()
    return "removed"


def masks_its_files() -> int:
    return os.umask(0o777)


def changes_variables() -> str:
    os.environ["MINE"] = "yes"
    os.environ["PATH"] = "/nowhere"
    os.environ.pop("HOME", None)
    return "changed"


def changes_variables_of_programs() -> str:
    os.putenv("MINE", "yes")
    os.putenv("PATH", "/nowhere")
    os.unsetenv("HOME")
    ctypes.CDLL(None).setenv(b"YOURS", b"yes", 1)
    return "put"


def clears_variables() -> str:
    os.environ.clear()
    return "cleared"


def replaces_variables() -> str:
    ANY_OS.environ = {}
    return "replaced"


def changes_settings() -> str:
    sys.setrecursionlimit(60)
    sys.setswitchinterval(10)
    sys.settrace(lambda *_: None)
    gc.disable()
    warnings.simplefilter("error")
    socket.setdefaulttimeout(0.001)
    decimal.getcontext().prec = 2
    random.seed(7)
    multiprocessing.set_start_method("spawn")
    sys.argv[:] = ["harm"]
    sys.path.clear()
    sys.excepthook = lambda *_: None
    return "set"


def lives_in_another_zone() -> str:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    del os.environ["TZ"]
    return time.tzname[0]


def finds_no_modules() -> str:
    sys.meta_path.clear()
    sys.set_int_max_str_digits(0)
    return "none"


def unloads_all_modules() -> str:
    sys.modules.clear()
    return "unloaded"


def replaces_what_a_call_begins_with() -> str:
    ANY_OS.chdir = None
    return "replaced"


def logs_into_its_file() -> str:
    logging.basicConfig(filename="log", level=logging.DEBUG)
    logging.disable(logging.CRITICAL)
    return "logs"


# Memory, recursion, results.


def recurses() -> int:
    return 1 + recurses()


def recurses_without_bound() -> str:
    sys.setrecursionlimit(1 << 30)

    class Deep:
        def __repr__(self) -> str:
            return repr(self)  # by way of the interpreter, whose stack is short

    return repr(Deep())


def takes_all_memory() -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def generates() -> Iterator[int]:
    yield 1


async def waits() -> None:
    await asyncio.sleep(0)


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raises_without_a_text() -> NoReturn:
    raise SilentError


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def raises_what_exits_as_it_is_read() -> NoReturn:
    raise ExitingError


def raises_what_is_no_text() -> NoReturn:
    raise ValueError("no file \udcff")


def raises_what_cannot_be_shown() -> NoReturn:
    error: Any = SyntaxError("wrong", ("file", 1, 1, "text"))
    error.lineno = error.offset = error.text = object
    raise error


def raises_what_cannot_be_pickled() -> NoReturn:
    error = OSError(5, "why")
    vars(error)["lock"] = threading.Lock()
    raise error


def raises_very_much() -> NoReturn:
    raise ValueError("x" * 3_000_000)


class RaisesAsItIsPickled:
    def __reduce__(self) -> NoReturn:
        raise SystemExit("as it is pickled")
