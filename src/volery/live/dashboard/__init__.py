"""The live page: jobs, tasks, nodes and users of a federation as HTML, for people, at / of the API."""
