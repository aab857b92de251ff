"""The service of a federation: the API, access to it, the job service and its store."""
