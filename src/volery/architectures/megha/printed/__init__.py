"""Answers to launches and synchronous requests (arXiv 2103.08413, sections IV-A and V-D), attached to Megha."""
