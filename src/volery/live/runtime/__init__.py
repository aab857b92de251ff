"""Hosts: components at work on a real clock, the journal of what they did, and which of their peers live."""
