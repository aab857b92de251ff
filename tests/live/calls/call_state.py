"""The state in which a call finds its process: after any harm of an earlier one, it must be the same."""

from __future__ import annotations

import ctypes
import decimal
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from volery.live.node.descendants import MARK_LIMIT


def seen() -> dict[str, Any]:
    """The state of the process of this call, as far as it must not depend on earlier calls."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if line.startswith(("Sig", "Shd", "Umask", "NoNew", "Cpus")))
    status.pop("SigQ")
    sys.stdout.write("printed\n")
    os.write(2, b"written\n")
    return {
        **status,
        "environment": {name: value for name, value in os.environ.items() if not name.startswith("VOLERY_")},
        "of programs": sorted(_variables_of_programs()),
        "limits": [resource.getrlimit(number) for number in range(16) if number != MARK_LIMIT],
        "timers": [signal.getitimer(timer)[0] for timer in range(3)],
        "handlers": [str(signal.getsignal(number)) for number in range(1, 65)],
        "threads": threading.active_count(),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "settings": (
            sys.getrecursionlimit(),
            sys.getswitchinterval(),
            sys.gettrace(),
            sys.getprofile(),
            gc.isenabled(),
            locale.setlocale(locale.LC_ALL),
            socket.getdefaulttimeout(),
            decimal.getcontext().prec,
            multiprocessing.get_start_method(allow_none=True),
            logging.root.handlers,
            logging.root.level,
            logging.root.manager.disable,
            [str(entry) for entry in warnings.filters],
            sys.argv,
            sys.path,
            len(sys.meta_path),
            sys.get_int_max_str_digits(),
            time.tzname,
            str(sys.excepthook),
            sys.stdin.read(),
            sys.stdout.encoding,
            sys.stderr.errors,
        ),
        "streams": [(it.fileno(), it in (sys.__stdout__, sys.__stderr__)) for it in (sys.stdout, sys.stderr)],
        "folder": [Path.cwd().name, len([*Path().iterdir()])],
    }


def _variables_of_programs() -> Iterator[bytes]:
    """The environment that this process gives to programs, which `os.environ` need not show."""
    variables = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    for at in count():
        if (variable := variables[at]) is None:
            return
        if not variable.startswith(b"VOLERY_"):
            yield variable
