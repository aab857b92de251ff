"""Captions of films: the first message of each kind, for readers who do not know Pigeon."""

from __future__ import annotations

from typing import Final

CAPTIONS: Final = {
    "Submit": "Job {job}{user} comes to {receiver}, a distributor that knows no machine: {tasks_of_job} to deal out.",
    "GroupTasks": (
        "{sender} deals {tasks} to {receiver}, master of a group of machines; each group gets its part, however busy."
    ),
    "Launch": "{sender} has an idle machine in its group: it launches {tasks} on {receiver}.",
    "Completed": "{sender} tells {receiver} that {tasks} has finished; the machine is idle again.",
    "Withdrawn": "{sender} has let {tasks} go that waited: the job was given up.",
}
