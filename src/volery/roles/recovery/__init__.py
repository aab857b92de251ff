"""Reliable channels, elected leaders and leases, for designs that tolerate crashes and lost messages."""
