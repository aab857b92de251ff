"""Forecasts: the state of a live federation is copied into the lab, and played on from there."""
