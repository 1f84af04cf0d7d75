"""One report a client of a sketch, in one round, as a plan (Sequence Fragment Puzzle).

Each client goes to one of a few groups at random, whatever it holds, and sends one
report of a local randomizer whose sum is a sketch: a table of counts, a table a group.
The sums are released as they are.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.local import plan as local_plan
from federated_hh.privacy.local import report_guarantees
from federated_hh.privacy.local import reports as reports_lib
from federated_hh.privacy.shuffle import closed_forms
from federated_hh.randomness import identities, streams

# Facts of the round.
REPORTS = "reports"
_ASSUMPTIONS = (
    "A secure sum for each group, or a shuffler of all reports, shows the server "
    "nothing of a report by itself: the central guarantees rest on it. The simulation "
    "computes the sums in the clear.",
    "Every asked client sends exactly one report, also one without data: a missing "
    "report is one less to hide among. In the simulation nobody drops out.",
    local_plan.HONEST_CLIENTS,
)
_NOT_COUNTED = (
    statement.SIMULATOR_KNOWLEDGE,
    "Choices made by looking at the data (alphabet, length, threshold, parameters, "
    "number of repeats), a client's participation and its time.",
    "Further runs with the same clients: each costs its own epsilon and delta.",
)
_BALLE = "closed form, Balle et al. 2019 Theorem 5.3 (as Zhu et al. 2020 have it)"


class Sketch(Protocol):
    """A local randomizer whose sum is a table, with its description.

    Its canonical text has everything that its reports depend on.
    """

    @property
    def guarantee(self) -> reports_lib.Known:
        """The guarantee of a report."""

    @property
    def domain_size(self) -> int:
        """The items that a report is about."""

    @property
    def sketch_shape(self) -> tuple[int, int]:
        """The shape of a group's table."""

    def sketch_of_histogram(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sum of independent reports: int64, `sketch_shape`.

        Args:
            histogram: int64 [domain_size]: the reports of each true item.
            seed: The seed of all randomness.
        """


@identities.identity(
    "SketchReports",
    "sketch num_groups draws_sum algorithm population_has_empty_users",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SketchReports(plan_lib.Contribution):
    """One report of a sketch a client; a client without an item has one for that.

    Attributes:
        sketch: The randomizer.
        num_groups: Into how many groups clients go, each equally likely; at least 1.
        draws_sum: Whether the simulation computes how many clients of each group have
            each item, of which the sketches are drawn, and not every report by itself.
        algorithm: Name of the algorithm, in statements.
        population_has_empty_users: Whether clients without an item are in the
            population.
    """

    sketch: Sketch
    num_groups: int
    draws_sum: bool
    algorithm: str
    population_has_empty_users: bool = False

    def __post_init__(self):
        checks.integer(num_groups=self.num_groups, least=1)

    @property
    def local_epsilon(self) -> float:
        """The epsilon of a report, for the exchange of its item."""
        return self.sketch.guarantee.replacement_epsilon

    def reported(
        self, total: Any, facts: plan_lib.Facts, stream: streams.Stream
    ) -> np.ndarray:
        """Returns the sketches of the groups.

        Args:
            total: int64 [num_groups, domain_size], true items, where `draws_sum`; else
                the sketches: int64 [num_groups, *sketch_shape].
            facts: The facts of the round: `REPORTS` in all.
            stream: The stream of the round.

        Raises:
            ValueError: The sum is of another shape or number of reports.
        """
        sketch = self.sketch
        shape = (sketch.domain_size,) if self.draws_sum else sketch.sketch_shape
        if total.shape != (self.num_groups, *shape):
            raise ValueError(
                f"the sum has the shape {total.shape}; it has to be "
                f"{(self.num_groups, *shape)}"
            )
        if not self.draws_sum:
            return total
        if total.sum() != facts[REPORTS]:
            raise ValueError(
                f"the sum is of {total.sum():,} items; {facts[REPORTS]:,} clients were "
                "asked, and each has one"
            )
        return np.stack(
            [
                sketch.sketch_of_histogram(
                    histogram, stream.seed_sequence("sketch", group)
                )
                for group, histogram in enumerate(total)
            ]
        )


_Plan: TypeAlias = plan_lib.Plan[Any, SketchReports, plan_lib.NoNoise]


class _Theorem(plan_lib.Theorem):
    """The theorem of any local reports, and Balle et al.'s closed form."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` where a report has no local guarantee."""
        epsilon = plan.contribution.local_epsilon
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise ValueError(
                f"sketch has a replacement epsilon of {epsilon}; it has to be finite "
                "and above 0"
            )

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` for a second round, or another number of reports."""
        plan_lib.check_number(number, 1, "the number of rounds")
        if facts.get(REPORTS) != plan.sampler.cohort_size:
            raise ValueError(
                f"{REPORTS} is {facts.get(REPORTS)}; a cohort of "
                f"{plan.sampler.cohort_size:,} sends as many"
            )

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement, that of local reports with one report a client."""
        reports, rounds = plan.contribution, record.rounds if record else None
        num_repeats = rounds.num_repeats if rounds else repeats
        clients = plan.sampler.cohort_size
        has_empty = reports.population_has_empty_users
        parameters = {
            "local_epsilon": reports.local_epsilon,
            "delta": delta,
            "clients (n)": clients,
            "groups": reports.num_groups,
            "items": reports.sketch.domain_size,
            "sketch": identities.canonical(reports.sketch),
            "num_repeats": num_repeats,
            **local_plan.empty_users(has_empty),
        }
        label = identities.label_of(type(reports.sketch))
        mechanism = f"{reports.algorithm} with {label}"
        run = _run(parameters, mechanism, len(rounds.rounds) if rounds else 0)
        return local_plan.statement_of(
            run,
            delta,
            rounds,
            found=(_guarantees(run, delta), _accounting(clients)),
            protected=(
                "The one item that a client reports on, and with it all data of the "
                "client; in one round"
                + (f" of each of {num_repeats} repeats." if num_repeats > 1 else ".")
            ),
            mechanism=mechanism,
            mechanism_output=(
                "Local: every report. Central: the sums of the groups' reports, and "
                "with them the items with the largest estimates and all later results."
            ),
            parameters=parameters,
            assumptions=(
                *_ASSUMPTIONS,
                local_plan.NOISE_KEY,
                *local_plan.public_population(has_empty),
            ),
            not_counted=_NOT_COUNTED,
        )


def _accounting(clients: int) -> str:
    return (
        f"There is one round of {clients:,} reports, one of each client. "
        + (
            "Their sum, or all of them shuffled, has the central epsilon: by clones, "
            "which holds for every local randomizer, and by the closed form that the "
            "paper takes. The groups' sums are a function of that: which group a "
            "client is in is a part of its report, drawn whatever it holds. "
            if clients > 1
            else "A single report is not amplified. "
        )
        + "Repeats are composed from bounds of delta at every epsilon, as privacy loss "
        "distributions."
    )


def _run(
    parameters: Mapping[str, Any], mechanism: str, num_rounds: int
) -> report_guarantees.ReportRounds:
    """Returns the rounds of local reports that cost the same."""
    return report_guarantees.ReportRounds(
        local_epsilon=parameters["local_epsilon"],
        cohort_size=parameters["clients (n)"],
        domain_sizes=[parameters["items"]] * num_rounds,
        num_repeats=parameters["num_repeats"],
        randomizer=mechanism.rpartition(" with ")[2],
    )


def recomputed(stated: statement.PrivacyStatement) -> tuple[Guarantee, ...]:
    """Returns the guarantees that follow from a statement's parameters.

    Args:
        stated: A statement of sketches, with guarantees.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter is out of range or not that of the realised rounds.
    """
    rounds = stated.realised
    run = _run(stated.parameters, stated.mechanism, rounds.rounds if rounds else 0)
    run.check_realised(rounds, run.num_repeats)
    return _guarantees(run, float(stated.parameters["delta"]))


def _guarantees(
    run: report_guarantees.ReportRounds, delta: float
) -> tuple[Guarantee, ...]:
    """Returns those of local reports, and Balle et al.'s of one repeat."""
    checks.probability(delta=delta)
    found, _ = report_guarantees.guarantees(run, delta)
    if run.cohort_size == 1:
        return tuple(found)
    balle = Guarantee(
        epsilon=closed_forms.hoeffding_blanket_epsilon(
            run.local_epsilon, delta, run.cohort_size
        ),
        delta=delta,
        bound=_BALLE,
        is_upper_bound=True,
        one_sided=False,
        adjacency=Adjacency.REPLACE_ONE_ITEM,
        assumptions=("only the shuffled reports, or their sum, are seen",),
        of_one_repeat=run.num_repeats > 1,
        is_comparison=True,
    )
    return (*found, balle)


plan_lib.register(
    plan_lib.Sampling.DISJOINT, SketchReports, plan_lib.NoNoise, _Theorem()
)
