"""Scheduling as a minimum-cost flow (Quincy, SOSP 2009; Firmament, OSDI 2016): networks, costs, solvers."""
