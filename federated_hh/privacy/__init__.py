"""Privacy accounting: plans, guarantees, statements, ledgers. Needs no TensorFlow."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "conversions": [
            "gaussian_delta",
            "group_privacy",
            "renyi_to_epsilon",
            "zcdp_to_epsilon",
        ],
        "guarantee": ["Adjacency", "Guarantee", "Unit"],
        "ledger": ["Ledger"],
        "plan": [
            "Contribution",
            "Draw",
            "Limits",
            "Mechanism",
            "NoNoise",
            "Plan",
            "Record",
            "Release",
            "Sampler",
            "Sampling",
            "Theorem",
            "register",
        ],
        "realised": ["RealisedRounds"],
        "statement": ["PrivacyStatement"],
        "voting_rounds": ["VotingRounds"],
    },
)
