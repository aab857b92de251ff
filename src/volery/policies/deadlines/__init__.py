"""Finishing jobs by their deadlines with few resources (Jockey: Ferguson et al., EuroSys 2012).

Published formulas were recalled, not read: docs/reference/deadlines.md marks what is recalled, and what is ours.
"""
