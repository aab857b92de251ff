"""Volery: a laboratory and a live federation for datacenter schedulers.

`import volery as vo` is the lab in Python; docs/reference/python.md describes each name. Other modules may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volery.lab.surface import *  # noqa: F403 - the names below

__version__ = "0.1.0"
__all__ = [  # noqa: F405 - imported for type checkers, above, and by `__getattr__`
    "ClusterSource",
    "Comparison",
    "Design",
    "InputError",
    "LostRunError",
    "Picture",
    "Simulation",
    "TraceSource",
    "architecture",
    "cluster",
    "compare",
    "load",
    "simulate",
    "trace",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A name of the lab, whose libraries are imported when it is first used; a submodule is none of them."""
        if name in __all__:
            return getattr(import_module("volery.lab.surface"), name)
        raise AttributeError(f"module 'volery' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
