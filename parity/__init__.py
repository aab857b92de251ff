"""Parity: a real Slurm and the lab's `slurm`, side by side on the same seeded workloads."""
