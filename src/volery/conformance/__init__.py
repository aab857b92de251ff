"""The contract as plain functions: each `check_*(architecture)` raises NonconformanceError when a design breaks it.

They need nothing but the design, so that the author of a scheduler elsewhere can call `conform(ARCHITECTURE)` from any
test runner. A design is judged with its own defaults on clusters of about 40 machines; one that needs other parameters
there is passed with other defaults (`msgspec.structs.replace(architecture, defaults=...)`).
"""

from volery.conformance.determinism import (
    check_builds_share_nothing,
    check_codec_changes_nothing,
    check_knowledge_is_honest,
    check_labels_do_not_matter,
    check_observing_changes_nothing,
    check_same_seed_same_digest,
)
from volery.conformance.features import (
    check_features_are_declared,
    check_ignored_features_change_nothing,
    check_locality,
)
from volery.conformance.jobs import check_cancel, check_failed_tasks_are_over, check_gangs, check_workflows
from volery.conformance.protocol import (
    check_allocation_adds_up,
    check_costly_roles_saturate,
    check_flow_is_declared,
    check_link_delays,
    check_lone_task_costs_its_hops,
    check_messages_are_declared,
    check_messages_survive_the_codec,
    check_stages_exist,
    check_unknown_messages_raise,
    check_worker_queues_are_reported,
)
from volery.conformance.safety import (
    check_capacity_and_constraints,
    check_done_is_said_once,
    check_every_task_finishes_once,
    check_goes_quiet,
    check_invariants,
    check_jitter_is_safe,
    check_nobody_loses_what_it_is_due,
    check_repeated_messages,
    check_submitting_again_when_done,
    check_submitting_twice,
    check_ties_are_safe,
)
from volery.conformance.verdict import CHECKS, NonconformanceError, NotQuietError
from volery.core.component import Architecture

__all__ = [
    "CHECKS",
    "NonconformanceError",
    "NotQuietError",
    "check_allocation_adds_up",
    "check_builds_share_nothing",
    "check_cancel",
    "check_capacity_and_constraints",
    "check_codec_changes_nothing",
    "check_costly_roles_saturate",
    "check_done_is_said_once",
    "check_every_task_finishes_once",
    "check_failed_tasks_are_over",
    "check_features_are_declared",
    "check_flow_is_declared",
    "check_gangs",
    "check_goes_quiet",
    "check_ignored_features_change_nothing",
    "check_invariants",
    "check_jitter_is_safe",
    "check_knowledge_is_honest",
    "check_labels_do_not_matter",
    "check_link_delays",
    "check_locality",
    "check_lone_task_costs_its_hops",
    "check_messages_are_declared",
    "check_messages_survive_the_codec",
    "check_nobody_loses_what_it_is_due",
    "check_observing_changes_nothing",
    "check_repeated_messages",
    "check_same_seed_same_digest",
    "check_stages_exist",
    "check_submitting_again_when_done",
    "check_submitting_twice",
    "check_ties_are_safe",
    "check_unknown_messages_raise",
    "check_worker_queues_are_reported",
    "check_workflows",
    "conform",
]


def conform(architecture: Architecture) -> None:
    """Run every check of the contract.

    Raises:
        NonconformanceError: of the first check that fails.
    """
    for each in CHECKS.values():
        each(architecture)
