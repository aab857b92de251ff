"""The documentation; `docs.pages` makes those of its pages that follow from the code."""
