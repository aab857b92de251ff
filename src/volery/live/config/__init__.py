"""The federation as its file describes it: hosts, machines, constraints, and the components that come of it."""
