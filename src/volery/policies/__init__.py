"""Decisions as pure functions and small classes, shared by the designs."""
