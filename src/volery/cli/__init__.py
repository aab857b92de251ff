"""The command line: the only place that imports every room, and the only one that prints."""
