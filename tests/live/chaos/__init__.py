"""Chaos on real processes: a federation over a real broker, and whatever can be done to its processes, disks and links.

python -m tests.live.chaos --minutes 10 --seed 1; `make chaos` runs it. A schedule (`volery.faults.schedule`) says what
is done to which process and when, and which jobs come meanwhile; `volery storm --schedule` plays it in the lab.
Whoever ends by itself is started again after a second, as any supervisor would. Jobs are submitted by key, and
submitted again when no answer comes.

Checked from outside, by the rules of `volery.faults.judge`: tasks write down when they begin and end, and hold locks
for what they take of their machine, so that the kernel says when one that was killed has let go.
"""
