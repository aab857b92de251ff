"""Captions of films: the first message of each kind, for readers who do not know Sparrow."""

from __future__ import annotations

from typing import Final

CAPTIONS: Final = {
    "Submit": "Job {job}{user} comes to {receiver}, a scheduler: {tasks_of_job}. It knows of no machine what it does.",
    "Probe": (
        "{sender} probes {receiver}, drawn at random: a reservation without a task. It sends more probes than tasks."
    ),
    "TaskRequest": "{sender} has a free slot, and asks {receiver} for the task that its reservation stands for.",
    "Assign": "{sender} binds late: {receiver} was among the first to have a slot, and gets {tasks}.",
    "NoTask": "{sender} has no task left for {receiver}: other machines were faster. Its reservation is void.",
    "Place": "{sender} has counted queues, and gives {tasks} to {receiver}.",
    "Completed": "{sender} tells {receiver} that {tasks} has finished.",
}
