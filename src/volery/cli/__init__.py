"""The command line: the only place that knows every room, and the only one that prints."""
