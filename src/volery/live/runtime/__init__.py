"""Hosts: components at work on a real clock, the journal of their events, and the detection of failed peers."""
