"""Volery: a laboratory and a live federation for datacenter schedulers."""

__version__ = "0.1.0"
