"""Process state: what a called function may change in its process, and what is brought back before the next call.

Brought back: streams and descriptors 0 to 2, environment, umask, timers, signal handlers and masks, resource limits,
processors, and the settings of the interpreter and of modules that have one for the whole process. Modules stay loaded,
with all that they hold. What cannot be brought back is compared: the next call gets another process then.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # it has no types
import ctypes
import gc
import io
import locale
import logging
import os
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

_LIMITS: Final = range(16)
"""All resource limits of Linux; Python names most of them."""
_SIGNALS: Final = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_STREAMS: Final = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))
_HOOKS: Final = ("excepthook", "displayhook", "unraisablehook", "breakpointhook")
_STATUS: Final = {
    b"Uid": "its user", b"Gid": "its group", b"Groups": "its groups", b"CapEff": "its capabilities",
    b"NoNewPrivs": "its privileges", b"Seccomp": "its system calls", b"SigBlk": "blocked signals",
    b"SigIgn": "ignored signals", b"SigCgt": "handlers of signals",
}  # fmt: skip
"""Lines of /proc/self/status that are compared, and what they are about."""
_MEMORY: Final = b"VmData"
_LINES: Final = re.compile(rb"^(%s):(.*)$" % b"|".join((*_STATUS, _MEMORY)), re.MULTILINE)
_STATUS_BYTES: Final = 8192
_SEED_BYTES: Final = 32
_C: Final = ctypes.CDLL(None)
_put: Final = os.putenv
"""Kept, since a call may replace the function."""
DESCRIPTORS_MORE_MAX: Final = 64
"""A process whose calls have left so many files open makes no further call."""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _set_signal_mask(mask: Any) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Setting(NamedTuple):
    """A value of the whole process that can be read and set."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


_SETTINGS: Final = (
    _Setting(_umask, os.umask),
    _Setting(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()), _set_signal_mask),
    _Setting(lambda: os.sched_getaffinity(0), lambda cpus: os.sched_setaffinity(0, cpus)),
    _Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    _Setting(sys.getswitchinterval, sys.setswitchinterval),
    _Setting(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    _Setting(sys.gettrace, sys.settrace),
    _Setting(sys.getprofile, sys.setprofile),
    _Setting(lambda: [getattr(sys, name) for name in _HOOKS], lambda hooks: _set_all(sys, _HOOKS, hooks)),
    _Setting(lambda: [*sys.path], lambda path: sys.path.__setitem__(slice(None), path)),
    _Setting(lambda: [*sys.meta_path], lambda finders: sys.meta_path.__setitem__(slice(None), finders)),
    _Setting(lambda: [*sys.argv], lambda argv: sys.argv.__setitem__(slice(None), argv)),
    _Setting(gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    _Setting(gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    _Setting(lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    _Setting(lambda: [*warnings.filters], lambda filters: _set_filters(filters)),
    _Setting(lambda: [*logging.root.handlers], lambda handlers: _set_handlers(handlers)),
    _Setting(lambda: logging.root.level, logging.root.setLevel),
    _Setting(lambda: logging.root.manager.disable, logging.disable),
)


def _set_all(owner: object, names: tuple[str, ...], values: list[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        setattr(owner, name, value)


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]  # it is a list
    with warnings.catch_warnings():  # its end makes the interpreter read them again
        pass


def _set_handlers(handlers: list[logging.Handler]) -> None:
    for handler in [*logging.root.handlers]:
        if handler not in handlers:
            logging.root.removeHandler(handler)
            with suppress(Exception):
                handler.close()
    for handler in handlers:
        logging.root.addHandler(handler)


def _reset_loaded() -> None:
    """Bring modules of the standard library back that hold one value for the process, where they are loaded."""
    with suppress(AttributeError):  # a module of the user's own may have such a name
        if random := sys.modules.get("random"):
            random.seed(os.urandom(_SEED_BYTES))  # it takes 2,500 by itself
        if network := sys.modules.get("socket"):
            network.setdefaulttimeout(None)
        if multiprocessing := sys.modules.get("multiprocessing"):
            multiprocessing.set_start_method(None, force=True)


def stop_timers() -> None:
    """Stop the timers that send signals, whose handlers may raise anything anywhere."""
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


class ProcessState:
    """The state of this process before its first call.

    Attributes:
        grown_mb: private memory that it had got when it was last restored.
    """

    grown_mb = 0

    def __init__(self) -> None:
        self._environ = os.environ
        self._variables: dict[bytes, bytes] = vars(os.environ)["_data"]
        self._environment = {**self._variables}
        self._settings = [setting.read() for setting in _SETTINGS]
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._limits = [*map(resource.getrlimit, _LIMITS)]
        self._streams: dict[str, Any] = {name: getattr(sys, name) for name, _, _ in _STREAMS}
        self._forms = {name: _form(stream) for name, stream in self._streams.items()}
        self._kernel, self._first_mb = _kernel_state()
        self._descriptor_count = _descriptor_count()

    def restore(self) -> str:
        """Bring back what a call has changed; return what it has changed for good, in words, or nothing."""
        stop_timers()
        signal.set_wakeup_fd(-1)
        for caught, handler in self._handlers.items():
            if handler is not None and _signal.getsignal(caught) != handler:
                signal.signal(caught, handler)
        self._restore_streams()
        self._restore_environment()
        limits = self._changed_limits()
        for number in limits:
            with suppress(OSError, ValueError):  # it is compared below
                resource.setrlimit(number, self._limits[number])
        for setting, value in zip(_SETTINGS, self._settings, strict=True):
            if setting.read() != value:
                setting.write(value)
        _reset_loaded()
        return self._changed(limits)

    def _changed_limits(self) -> list[int]:
        now = [*map(resource.getrlimit, _LIMITS)]
        return [number for number in _LIMITS if now[number] != self._limits[number]] if now != self._limits else []

    def _restore_environment(self) -> None:
        vars(os)["environ"] = self._environ  # a call may have put something else there
        vars(self._environ)["_data"] = self._variables
        self._variables.clear()
        self._variables.update(self._environment)
        # What the programs of the next call are given may have been changed without `os.environ`.
        _C.clearenv()
        for variable in self._environment.items():
            _put(*variable)
        time.tzset()  # of TZ; a call may have set it and taken it away

    def _restore_streams(self) -> None:
        """Put the streams of the beginning back; one that is closed, or keeps what it cannot write, is made anew."""
        for name, descriptor, mode in _STREAMS:
            stream, form = self._streams[name], self._forms[name]
            try:
                stream.flush()
                if _form(stream) != form:
                    stream.reconfigure(**form)
            except (OSError, ValueError):
                stream = self._streams[name] = _opened(descriptor, mode, form)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def _changed(self, limits: list[int]) -> str:
        if len(sys._current_frames()) > 1:
            return "a thread of it runs on"
        if sys.modules.get("sys") is not sys:
            return "its modules are unloaded"
        if limits and (limits := self._changed_limits()):
            return f"resource limit {limits[0]} is {resource.getrlimit(limits[0])}"
        kernel, private_mb = _kernel_state()
        self.grown_mb = max(private_mb - self._first_mb, 0)
        for name, value in kernel.items():
            if value != self._kernel.get(name):
                return f"{name} changed"
        more = _descriptor_count() - self._descriptor_count
        return f"{more} files are left open" if more > DESCRIPTORS_MORE_MAX else ""


def _form(stream: Any) -> dict[str, Any]:
    names = ("encoding", "errors", "line_buffering", "write_through")
    return {name: getattr(stream, name) for name in names}


def place(descriptor: int, path: str, flags: int) -> None:
    """Open a file at a descriptor, which need not be open now.

    Raises:
        OSError: it cannot be opened.
    """
    opened = os.open(path, flags, 0o644)
    if opened == descriptor:
        os.set_inheritable(descriptor, True)
    else:
        os.dup2(opened, descriptor)
        os.close(opened)


def _opened(descriptor: int, mode: str, form: dict[str, Any]) -> io.TextIOWrapper:
    place(descriptor, os.devnull, os.O_RDWR)
    file = open(descriptor, f"{mode}b", closefd=False)  # noqa: SIM115 - it stays open
    return io.TextIOWrapper(file, **form)


def _kernel_state() -> tuple[dict[str, object], int]:
    """The state that no process may set back, by words for it; and its private memory, in units of 2^20 bytes."""
    found = dict(_LINES.findall(_content("/proc/self/status")))
    private_kb = int(found.pop(_MEMORY).split()[0])
    state: dict[str, object] = {_STATUS[name]: value for name, value in found.items()}
    state["its priority"] = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    state["its root folder"] = os.readlink("/proc/self/root")  # noqa: PTH115 - as in `_content`
    return state, private_kb >> 10


def _content(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)  # a Path takes several times as long, and each call waits for it
    try:
        return os.read(file, _STATUS_BYTES)
    finally:
        os.close(file)


def _descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as in `_content`
