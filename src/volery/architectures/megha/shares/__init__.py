"""Shares of users and preemption (arXiv 2103.08413, section IV-C), attached to Megha."""
