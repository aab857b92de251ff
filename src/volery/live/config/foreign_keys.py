"""Keys of job files of other systems (Slurm, Kubernetes, CI, workflow engines), and what there is here instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ANSWERS: Final = {
    "retries retry max_retries retry_limit max_attempts attempts restart restart_policy backoff_limit requeue": (
        "a task that fails is not run again, only one whose node is lost; repeat the command in the command itself"
    ),
    "depends_on dependencies dependency depends needs requires after afterok parents wait_for upstream": (
        "jobs do not wait for each other; submit this one once `volery submit --watch` of the other has ended"
    ),
    "priority priority_class nice qos weight": (
        "a job has no priority; the shares of users decide, see `volery users`"
    ),
    "array job_array indices replicas ntasks parallelism completions matrix instances": (
        "write tasks = 10 for ten equal tasks; each reads its place from the variable VOLERY_INDEX"
    ),
    "queue partition partitions pool": "there are no queues; constraints say which machines a task may have",
    "cpus cpu cores ncpus cpus_per_task threads vcpus": (
        'write request = { cpu_milli = 2000 } for two processors, or constraints = ["cores >= 2"]'
    ),
    "mem memory memory_mb mem_mb mem_per_cpu ram": (
        'write request = { memory_mb = 512 }, or constraints = ["memory_mb >= 512"]'
    ),
    "gpu gpus gres gpus_per_task": "write request = { gpus = 1 }",
    "resources resource limits requests": "write request = { cpu_milli = 2000, memory_mb = 512, gpus = 1 }",
    "time walltime time_limit timeout max_runtime max_run_time active_deadline_seconds": (
        "write timeout_s, in seconds"
    ),
    "deadline begin start_time schedule cron": "a job starts as soon as there is room for it; submit it when it is due",
    "script run cmd exec executable program entrypoint args arguments argv": (
        'write command = ["program", "argument"], or a line for the shell'
    ),
    "environment environ envs env_vars variables vars export": 'write env = { NAME = "value" }',
    "workdir work_dir working_dir working_directory chdir directory dir": "write cwd, an absolute path on the node",
    "image container docker singularity apptainer": (
        "there are no containers; let the command start one, where the nodes have them"
    ),
    "output error stdout stderr log logs": "what a task prints is kept, and `volery logs JOB` shows it",
    "input inputs input_file stdin_file": "write stdin, the text itself; files have to be where the node sees them",
    "account project owner": "write user",
    "labels node_selector nodelist nodes hosts features affinity": (
        "constraints say which machines a task may have; `volery nodes` shows their labels"
    ),
    "id job_name title": "write name; the job's number comes with the answer",
}
FOREIGN_KEYS: Final[Mapping[str, str]] = {word: answer for words, answer in _ANSWERS.items() for word in words.split()}
"""A key in lower case with underscores -> one sentence."""


def answer_to(key: str) -> str:
    """One sentence about a key of another system; empty where it is not known."""
    return FOREIGN_KEYS.get(key.lower().replace("-", "_"), "")
