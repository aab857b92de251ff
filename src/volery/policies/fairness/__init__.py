"""Fairness between users: whose task is next, what each user is due, and who has more than that.

docs/reference/fairness.md says what each policy guarantees. The counter-examples are in `naive`, divisible
allocations in `fluid`.
"""

from volery.policies.fairness import fluid, naive
from volery.policies.fairness.drf import WeightedDrf
from volery.policies.fairness.hdrf import HierarchicalDrf
from volery.policies.fairness.ledger import ShareLedger, entitlements
from volery.policies.fairness.order import FairOrder, filling
from volery.policies.fairness.queue import FairLines, FairQueue, FairVectorQueue
from volery.policies.fairness.shares import (
    Resources,
    Sharer,
    dominant_share,
    equal_users,
    nodes,
    parse_shares,
    parse_shares_text,
    reweighed,
)

__all__ = [
    "FairLines",
    "FairOrder",
    "FairQueue",
    "FairVectorQueue",
    "HierarchicalDrf",
    "Resources",
    "ShareLedger",
    "Sharer",
    "WeightedDrf",
    "dominant_share",
    "entitlements",
    "equal_users",
    "filling",
    "fluid",
    "naive",
    "nodes",
    "parse_shares",
    "parse_shares_text",
    "reweighed",
]
