"""Sums of clients' integer vectors under masks: a protocol, and each party's view.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine
Learning", against an honest-but-curious server, over the graph of Bell et al. 2020,
"Secure Single-Server Aggregation with (Poly)Logarithmic Overhead". `protocol` runs a
sum; docs/masked_sum.md describes its security.
"""
