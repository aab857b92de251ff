"""The contract as plain functions: each `check_*(architecture)` raises NonconformanceError when a design breaks it.

They need nothing but the design, so that the author of a scheduler elsewhere can call `conform(ARCHITECTURE)` from any
test runner. A design is judged with its own defaults on clusters of about 40 machines; one that needs other parameters
there is passed with other defaults (`msgspec.structs.replace(architecture, defaults=...)`).
"""

from volery.conformance import determinism, features, jobs, protocol, safety  # noqa: F401 - each registers its checks
from volery.conformance.verdict import CHECKS, NonconformanceError, NotQuietError
from volery.core.component import Architecture

__all__ = ["CHECKS", "NonconformanceError", "NotQuietError", "conform"]


def conform(architecture: Architecture) -> None:
    """Run every check of the contract.

    Raises:
        NonconformanceError: the first check that fails.
    """
    for check in CHECKS.values():
        check(architecture)
