"""Load on a live federation: the jobs of a trace, in one process, in processes of its own, or through the API."""
