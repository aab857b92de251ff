"""Amounts of several resources by machine, and repartition (arXiv 2103.08413, section IV-B), attached to Megha."""
