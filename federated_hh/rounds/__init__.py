"""The engine: one loop for every algorithm, and its cohorts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "algorithm": ["Algorithm", "Query"],
        "block_round": ["BlockRound"],
        "experiment": ["Experiment", "run_experiment"],
        "run": ["Observed", "Observer", "Outcome"],
        "samplers": ["DisjointCohorts", "Everybody", "UniformCohorts"],
        "steps": ["Steps"],
        "timers": ["DiurnalAvailability", "Timers"],
    },
)
