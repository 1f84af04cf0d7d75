"""TrieHH: its guarantee, its parameters, and the words that it can find."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "detection": ["TrieHHDetection"],
        "guarantees": ["TrieHHParameters", "worst_case_discovery_rate"],
        "plan": ["OneVote", "Threshold"],
        "solver": ["solve_parameters"],
        "statement": ["triehh_statement"],
    },
)
