"""Reliable channels, elected leaders and leases: what designs are made of that tolerate crashes and lost messages."""
