"""Recordings on the live page: a run, or what a federation has journalled, as it stood at any moment of it."""
