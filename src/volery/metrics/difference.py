"""The former place of paired comparisons, kept for programs that import it; see `volery.statistics`."""

from volery.statistics import Difference, paired_difference, seeded_difference

__all__ = ["Difference", "paired_difference", "seeded_difference"]
