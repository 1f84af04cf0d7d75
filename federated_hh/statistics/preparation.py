"""The devices and the analysis of a run of interactive statistics, from its options."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd
from scipy import special

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import query_sizing
from federated_hh.rounds import samplers
from federated_hh.statistics import approvals
from federated_hh.statistics import options as statistics_options
from federated_hh.statistics.analyses import (
    analysis,
    custom_recipes,
    distribution,
    joint,
    ngrams,
)
from federated_hh.statistics.devices import (
    aggregation,
    device,
    fleet,
    policy_file,
    vector_fleet,
)
from federated_hh.statistics.recipes import device_table, events
from federated_hh.statistics.recipes import recipe as recipe_lib
from federated_hh.statistics.two_servers import aggregator as two_servers

# Of a query of the interactive distribution.
_MOST_BUCKETS = 1000
_MANY_DEVICES = 50_000


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The parts of a run before its first query.

    Attributes:
        algorithm: The analysis.
        stored: Contents of the devices.
        setting: Sizes of the answered query that needs the most holders.
        is_answered: Whether devices will answer any query.
    """

    algorithm: analysis.Analysis[Any]
    stored: events.NGramEvents | device_table.DeviceTable
    setting: query_sizing.Setting
    is_answered: bool = True

    def check_device(self, number: int) -> None:
        """Raises `ValueError` where there is no such device."""
        if number >= self.stored.num_devices:
            raise ValueError(
                f"--show_device_log is {number}; it has to be below the "
                f"{self.stored.num_devices:,} devices"
            )

    def complaints(self, state: Any) -> list[tuple[int, str]]:
        """Returns the custom recipes without an answer, and the told reasons."""
        if isinstance(self.algorithm, custom_recipes.CustomRecipes):
            return self.algorithm.complaints(state)
        return []

    def device_log(self, number: int) -> pd.DataFrame:
        """Returns a device's log for its owner, a row a query."""
        devices = self.algorithm.devices
        if not isinstance(devices, fleet.DeviceFleet):
            raise ValueError("vectorised devices keep no log")
        return devices.devices.log.of(number)


def resolved(
    options: statistics_options.StatisticsOptions,
    num_devices: int,
    recipes: Sequence[recipe_lib.Recipe] = (),
    approval: device.Approval | None = None,
    table: device_table.DeviceTable | None = None,
) -> statistics_options.StatisticsOptions:
    """Returns the options with the population's cohorts in the place of "auto"."""
    if options.cohorts != "auto":
        return options
    settings = settings_of(options, num_devices, recipes, approval, table)
    is_everybody = max(settings, key=_share).is_better_by_everybody
    if options.policy:
        reports = min(setting.policy.limits.reports for setting in settings)
        is_everybody = is_everybody and reports >= settings[0].queries
    if any(recipe.has_budget for recipe in recipes):
        largest = max(recipe.minimum_cohort for recipe in recipes)
        is_everybody = largest > num_devices // len(recipes)
    cohorts = "everybody" if is_everybody else "disjoint"
    return dataclasses.replace(options, cohorts=cohorts)


def settings_of(
    options: statistics_options.StatisticsOptions,
    num_devices: int,
    recipes: Sequence[recipe_lib.Recipe] = (),
    approval: device.Approval | None = None,
    table: device_table.DeviceTable | None = None,
) -> list[query_sizing.Setting]:
    """Returns the settings that say how many holders a value needs.

    Args:
        options: The options.
        num_devices: Number of devices.
        recipes: Custom recipes, if any.
        approval: The policy file's approval, if it is read already.
        table: The devices' custom table, if any.

    Returns:
        One a recipe, with the limits of the columns that it reads and its budget; one
        in all without recipes.
    """
    approval = approvals.approval_of(options, table, approval)
    queries = len(recipes) or options.num_queries
    is_everybody = options.cohorts == "everybody"
    found = []
    asked: list[recipe_lib.Recipe | None] = [*recipes] or [None]
    for recipe in asked:
        if recipe is None:
            policy = approvals.of_analysis(options, approval.policy)
        else:
            policy = approvals.of_recipe(approval, recipe) or approval.policy
        epsilon = policy.limits.aggregate_epsilon
        if recipe is not None and recipe.has_budget:
            epsilon = recipe.aggregate_epsilon * (queries if is_everybody else 1)
            limits = dataclasses.replace(
                policy.limits, local_epsilon=recipe.local_epsilon
            )
            policy = dataclasses.replace(policy, limits=limits)
        found.append(
            query_sizing.Setting(
                num_devices,
                queries,
                is_everybody,
                epsilon,
                policy,
                options.drop_out,
                float(special.ndtri(1 - options.false_positive_chance)),
            )
        )
    return found


def _share(setting: query_sizing.Setting) -> float:
    return setting.share


def prepare(
    options: statistics_options.StatisticsOptions,
    stored: events.NGramEvents | device_table.DeviceTable,
    fingerprint: str,
    recipes: Sequence[recipe_lib.Recipe] = (),
    approval: device.Approval | None = None,
) -> Prepared:
    """Prepares a run that can find something.

    Args:
        options: The options of the analysis.
        stored: Contents of the devices.
        fingerprint: Fingerprint of the typed text, or of the table.
        recipes: Custom recipes, if any.
        approval: The policy file's approval, if it is read already.

    Raises:
        ValueError: If there are too few devices, they would refuse a recipe, or
            vectorised ones cannot answer it.
    """
    table = stored if isinstance(stored, device_table.DeviceTable) else None
    options = resolved(options, stored.num_devices, recipes, approval, table)
    settings = settings_of(options, stored.num_devices, recipes, approval, table)
    for number, setting in enumerate(settings):
        if not recipes:
            setting.check()
        elif not recipes[number].has_budget:
            try:
                setting.check()
            except ValueError as error:
                told = policy_file.told(approvals.approval_of(options, table, approval))
                raise ValueError(f"{options.recipe[number]}: {error}; {told}") from None
    algorithm = algorithm_of(options, stored, fingerprint, recipes, approval)
    answered = settings
    if isinstance(algorithm, custom_recipes.CustomRecipes):
        approvals.check_recipes(options, algorithm.approval, algorithm.recipes, table)
        cohort = algorithm.plan.sampler.cohort_size
        for path, recipe in zip(options.recipe, algorithm.recipes, strict=False):
            if recipe.minimum_cohort > cohort and not options.ask_refused:
                raise ValueError(
                    f"{path}: minimumCohort is {recipe.minimum_cohort:,}, and a query "
                    f"is asked of {cohort:,} of {stored.num_devices:,} devices, so "
                    "that no sum would be released; without privacyBudget a recipe "
                    "gets one that fits"
                )
        if options.ask_refused:
            asked, is_everybody = algorithm.recipes, options.cohorts == "everybody"
            answered = [
                setting
                for number, setting in enumerate(settings)
                if asked[number].minimum_cohort <= cohort
                and not device.refusal(
                    algorithm.approval,
                    asked[number],
                    asked[:number] if is_everybody else (),
                )
            ]
    largest = max(answered or settings, key=_share)
    return Prepared(algorithm, stored, largest, bool(answered))


def algorithm_of(
    options: statistics_options.StatisticsOptions,
    stored: events.NGramEvents | device_table.DeviceTable,
    fingerprint: str,
    recipes: Sequence[recipe_lib.Recipe] = (),
    approval: device.Approval | None = None,
) -> analysis.Analysis[Any]:
    """Returns the analysis of devices that store some events.

    Args:
        options: The options of the analysis.
        stored: The events; the known words are those of their vocabulary.
        fingerprint: Fingerprint of the typed text.
        recipes: Custom recipes, if any.
        approval: The policy file's approval, if it is read already.

    Raises:
        ValueError: See `prepare`.
    """
    table = stored if isinstance(stored, device_table.DeviceTable) else None
    options = resolved(options, stored.num_devices, recipes, approval, table)
    approval = approvals.approval_of(options, table, approval)
    devices: fleet.Fleet
    if options.devices == "real":
        aggregator: aggregation.Aggregator = aggregation.SecureSum()
        if options.aggregation == two_servers.TwoServers.name:
            aggregator = two_servers.TwoServers(drop_out=options.drop_out)
        devices = fleet.DeviceFleet(approval, stored, aggregator)
    else:
        devices = vector_fleet.VectorFleet(approval, stored)
    num, queries = stored.num_devices, len(recipes) or options.num_queries
    sampler: plan_lib.Sampler
    if options.cohorts == "disjoint":
        if num < queries:
            raise ValueError(f"{num:,} devices cannot be cut into {queries} cohorts")
        sampler = samplers.DisjointCohorts(num, num // queries)
    else:
        sampler = samplers.UniformCohorts(num, num)
    common = (devices, approval, sampler)
    named: dict[str, Any] = {
        "aggregation": options.aggregation,
        "fingerprint": fingerprint,
        "drop_out": options.drop_out,
    }
    if recipes:
        expected = query_sizing.reports_expected(sampler.cohort_size, options.drop_out)
        asked = 1 if options.cohorts == "disjoint" else queries
        recipes = [
            approvals.with_budget(approval, recipe, asked, expected)
            for recipe in recipes
        ]
        return custom_recipes.CustomRecipes(*common, recipes=recipes, **named)
    tightest = approvals.of_analysis(options, approval.policy)
    if options.cohorts == "everybody" and tightest.limits.reports < queries:
        raise ValueError(
            f"--cohorts=everybody asks every device {query_sizing.counted(queries)}, "
            f"and --policy={options.policy} allows {tightest.limits.reports} reports: "
            "allow as many, or take --cohorts=disjoint"
        )
    epsilon = query_sizing.query_epsilon(
        tightest,
        1 if options.cohorts == "disjoint" else queries,
        query_sizing.reports_expected(sampler.cohort_size, options.drop_out),
    )
    if options.analysis == "distribution":
        return distribution.Distribution(
            *common,
            buckets=buckets_of(options),
            max_queries=queries,
            epsilon=epsilon,
            **named,
        )
    if not isinstance(stored, events.NGramEvents):
        raise ValueError(f"--analysis={options.analysis} needs words, not a table")
    kind = joint.Joint if options.analysis == "joint" else ngrams.NGrams
    return kind(
        *common,
        tokens=stored.words,
        length=options.ngram_words,
        is_interactive=options.strategy == "interactive",
        max_prefixes=options.max_prefixes,
        false_positives=options.false_positives,
        epsilon=epsilon,
        **named,
    )


def buckets_of(options: statistics_options.StatisticsOptions) -> distribution.Buckets:
    """Returns the buckets of a distribution."""
    is_static = options.strategy == "static"
    return distribution.Buckets(
        largest=options.max_seconds,
        first=options.grid_buckets if is_static else options.first_buckets,
        parts=options.split_parts,
        split_stderrs=options.split_stderrs,
        most=_MOST_BUCKETS,
    )


def summary(prepared: Prepared) -> str:
    """Returns a run's plan, in a line."""
    algorithm, setting = prepared.algorithm, prepared.setting
    first = algorithm.recipe(algorithm.initialize(0))
    if first is None:
        return "Nothing is asked."
    sampler = algorithm.plan.sampler
    found = (
        ""
        if prepared.is_answered
        else " No sum will be released: the last line has the reason."
    )
    if prepared.is_answered and setting.holders is not None:
        found = (
            f" A value is found with probability 0.9 if {setting.holders:,} devices "
            f"report it ({setting.share:.2%})."
        )
    if better := setting.better_delta:
        found += (
            f" Delta {setting.delta:g} of all reports of a device is above 1/n = "
            f"{1 / setting.num_devices:.2g}: {better:g} a query would do."
        )
    is_real = isinstance(algorithm.devices, fleet.DeviceFleet)
    if is_real and sampler.num_clients > _MANY_DEVICES:
        found += (
            " --devices=vectorised is more than 10 times as fast, with equal decisions."
        )
    return (
        f"{sampler.num_clients:,} devices, {sampler.cohort_size:,} a query "
        f"(--cohorts={'everybody' if setting.is_everybody else 'disjoint'}); "
        f"at most {query_sizing.counted(setting.queries)}. The first has "
        f"{first.content.num_cells:,} cells, aggregate epsilon "
        f"{first.aggregate_epsilon:.4g} at delta {algorithm.approval.policy.delta:g}, "
        f"local epsilon {first.local_epsilon:.4g} a report, and needs "
        f"{first.minimum_cohort:,} reports.{found}"
    )
