"""Errors of the job service besides wrong input."""

from __future__ import annotations

from volery.core.errors import InputError


class ConflictError(InputError):
    """A key stands for another job already."""


class AwayError(InputError):
    """A host that alone could answer does not."""


class UnwrittenError(Exception):
    """The store could not be written just now; nothing has happened, and the same may be asked again."""
