"""Reliable channels, elected leaders and leases, for designs that tolerate crashes and lost messages.

From below: `channel` delivers what is sent once and in order, `leases` is the node that several masters may lead,
`leadership` is what a leader knows of its nodes, and `election` decides which one of a pair leads.
"""
