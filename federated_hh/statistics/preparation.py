"""The devices and the analysis of a run of interactive statistics, from its options."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pandas as pd
from scipy import special

from federated_hh.options import fields as fields_lib
from federated_hh.populations.options import population_options
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import device_policy
from federated_hh.rounds import samplers
from federated_hh.statistics import options as statistics_options
from federated_hh.statistics import sizing
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
from federated_hh.statistics.recipes import device_table, events, verification
from federated_hh.statistics.recipes import recipe as recipe_lib
from federated_hh.statistics.two_servers import aggregator as two_servers

# As in the paper's figure 4.
_COHORTS = ("locale",)
# Of a query of the interactive distribution.
_MOST_BUCKETS = 1000
_MANY_DEVICES = 50_000


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The parts of a run before its first query.

    Attributes:
        algorithm: The analysis.
        stored: Contents of the devices.
        setting: Sizes of the run, for what it can find.
    """

    algorithm: analysis.Analysis[Any]
    stored: events.NGramEvents | device_table.DeviceTable
    setting: sizing.Setting

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


def approval_of(
    options: statistics_options.StatisticsOptions,
    table: device_table.DeviceTable | None = None,
) -> device.Approval:
    """Returns the approval that ships with every device, or that of the policy file.

    Args:
        options: The options; their cohorts "auto" count as disjoint.
        table: The devices' custom table, if any.

    Raises:
        ValueError: If the policy file is none, or does not go with the analysis.
    """
    identifier, name, columns = statistics_options.APPROVED[options.analysis]
    if options.policy:
        found = policy_file.read(options.policy)
        approved = found.query_class
        is_asked = not (options.recipe or options.print_policy)
        if approved.stream.name != name and not options.table:
            raise ValueError(
                f"{options.policy} is about the table {approved.stream.name}; give "
                f"its rows by --table, or the table {name}"
            )
        if is_asked and not approved.fields.issuperset(columns):
            raise ValueError(
                f"{options.policy} does not approve what --analysis={options.analysis} "
                f"reads, {', '.join(columns)} of {name}: {policy_file.told(found)}"
            )
        return found
    is_everybody = options.cohorts == "everybody"
    queries = options.num_queries
    if table is not None:
        identifier, columns = statistics_options.TABLE_IDENTIFIER, (*table.columns,)
        queries = max(1, len(options.recipe))
    limits = device_policy.Limits(
        aggregate_epsilon=options.epsilon,
        reports=queries if is_everybody else 1,
        local_epsilon=options.local_epsilon,
    )
    fields = dict.fromkeys(columns, limits)
    if table is None and options.analysis == "joint":
        # More sensitive: only the last query may read it.
        fields["age"] = dataclasses.replace(limits, reports=1)
    return policy_file.approved(
        events.STREAM if table is None else table.stream,
        analysis=identifier,
        limits=limits,
        fields=fields,
        randomizer=options.randomizer,
        delta=options.delta,
        composition=options.composition,
        cohorts=_COHORTS,
    )


def read_table(
    options: statistics_options.StatisticsOptions,
    files: population_options.PopulationOptions,
) -> device_table.DeviceTable | None:
    """Returns the devices' custom table; None without one.

    Args:
        options: The options; their policy names the table and its columns.
        files: The options of the file.

    Raises:
        ValueError: If the table or the policy cannot be read.
    """
    if options.table is None:
        return None
    stream = approval_of(options).query_class.stream if options.policy else None
    return device_table.DeviceTable.read(
        options.table,
        name=stream.name if stream else statistics_options.TABLE,
        types=stream.fields if stream else None,
        user_column=files.user_column,
        encoding=files.encoding,
        delimiter=files.separator,
        max_bad_rows=files.max_bad_rows,
    )


def check_recipes(
    options: statistics_options.StatisticsOptions,
    approval: device.Approval,
    recipes: Sequence[recipe_lib.Recipe],
) -> None:
    """Checks that devices will not refuse a recipe.

    Args:
        options: The options, with the recipes' files.
        approval: Approval that ships with each device.
        recipes: The recipes; one without a budget is checked but for that.

    Raises:
        ValueError: If they will, with what is approved.
    """
    errors: list[ValueError] = []
    for number, recipe in enumerate(recipes):
        earlier = recipes[:number] if options.cohorts == "everybody" else ()
        found = device.refusal(approval, recipe, earlier)
        if found is None and options.devices != "real":
            table = approval.query_class.stream.name
            try:
                vector_fleet.check_plain(recipe.query, table)
            except ValueError as error:
                errors.append(ValueError(f"{options.recipe[number]}: {error}"))
        if found is not None and not options.ask_refused:
            errors.append(
                ValueError(
                    f"{options.recipe[number]}: devices would refuse it: "
                    f"{found}; {policy_file.told(approval)}. --policy=FILE approves "
                    "other things; a recipe without privacyBudget gets one that fits"
                )
            )
    fields_lib.raise_all(errors)


def resolved(
    options: statistics_options.StatisticsOptions,
    num_devices: int,
    recipes: Sequence[recipe_lib.Recipe] = (),
) -> statistics_options.StatisticsOptions:
    """Returns the options with the population's cohorts in the place of "auto"."""
    if options.cohorts != "auto":
        return options
    setting = setting_of(options, num_devices, recipes)
    is_allowed = not options.policy or setting.policy.limits.reports >= setting.queries
    is_everybody = is_allowed and setting.with_best_cohorts().is_everybody
    if any(recipe.has_budget for recipe in recipes):
        largest = max(recipe.minimum_cohort for recipe in recipes)
        is_everybody = largest > num_devices // len(recipes)
    cohorts = "everybody" if is_everybody else "disjoint"
    return dataclasses.replace(options, cohorts=cohorts)


def setting_of(
    options: statistics_options.StatisticsOptions,
    num_devices: int,
    recipes: Sequence[recipe_lib.Recipe] = (),
) -> sizing.Setting:
    """Returns the setting that says how many holders a value needs."""
    limits = policy_file.read(options.policy).policy if options.policy else None
    policy = limits or approval_of(dataclasses.replace(options, table=None)).policy
    policy = _of_analysis(options, policy)
    queries = len(recipes) or options.num_queries
    is_everybody = options.cohorts == "everybody"
    epsilon = policy.limits.aggregate_epsilon
    budgets = [recipe for recipe in recipes if recipe.has_budget]
    if budgets:
        epsilon = min(recipe.aggregate_epsilon for recipe in budgets)
        epsilon *= queries if is_everybody else 1
        local = min(recipe.local_epsilon for recipe in budgets)
        policy = dataclasses.replace(
            policy, limits=dataclasses.replace(policy.limits, local_epsilon=local)
        )
    return sizing.Setting(
        num_devices,
        queries,
        is_everybody,
        epsilon,
        policy,
        options.drop_out,
        float(special.ndtri(1 - options.false_positive_chance)),
    )


def _tightest(
    policy: device_policy.Policy, columns: Iterable[str], once: Collection[str] = ()
) -> device_policy.Policy:
    """Returns a policy whose limits hold for some columns too.

    Args:
        policy: The policy.
        columns: Columns that every query may read.
        once: Those that a single query reads.
    """
    limits = [policy.limits, *(policy.fields[name] for name in columns)]
    often = [policy.limits]
    often += [policy.fields[name] for name in columns if name not in once]
    return dataclasses.replace(
        policy,
        limits=device_policy.Limits(
            aggregate_epsilon=min(each.aggregate_epsilon for each in limits),
            reports=min(each.reports for each in often),
            local_epsilon=min(each.local_epsilon for each in limits),
        ),
    )


def _of_analysis(
    options: statistics_options.StatisticsOptions, policy: device_policy.Policy
) -> device_policy.Policy:
    """Returns a policy with the limits of the columns that queries may read."""
    if options.recipe:
        return _tightest(policy, policy.fields)
    columns = statistics_options.APPROVED[options.analysis][2]
    return _tightest(policy, columns, once=("age",))


def _with_budget(
    approval: device.Approval,
    recipe: recipe_lib.Recipe,
    queries: int,
    cohort_size: int,
) -> recipe_lib.Recipe:
    """Returns a recipe with the largest budget that devices allow, if it has none."""
    if recipe.has_budget:
        return recipe
    policy = approval.policy
    with verification.Sandbox(approval.query_class) as sandbox:
        try:
            read = approval.verify(recipe, sandbox)
        except device.RecipeRefusedError:  # whatever its budget
            limit = policy.limits
            return dataclasses.replace(
                recipe,
                local_units=device_policy.units_of(limit.local_epsilon, "epsilon"),
                aggregate_units=device_policy.units_of(
                    limit.aggregate_epsilon, "epsilon"
                ),
                minimum_cohort=2,
            )
    tightest = _tightest(policy, read)
    epsilon = analysis.query_epsilon(tightest, queries, cohort_size)
    local_units, minimum = analysis.report_budget(
        policy.randomizer,
        policy.delta,
        tightest.limits.local_epsilon,
        epsilon,
        cohort_size,
    )
    return dataclasses.replace(
        recipe,
        local_units=local_units,
        aggregate_units=device_policy.units_of(epsilon, "epsilon"),
        minimum_cohort=minimum,
    )


def prepare(
    options: statistics_options.StatisticsOptions,
    stored: events.NGramEvents | device_table.DeviceTable,
    fingerprint: str,
    recipes: Sequence[recipe_lib.Recipe] = (),
) -> Prepared:
    """Prepares a run that can find something.

    Args:
        options: The options of the analysis.
        stored: Contents of the devices.
        fingerprint: Fingerprint of the typed text, or of the table.
        recipes: Custom recipes, if any.

    Raises:
        ValueError: If there are too few devices, they would refuse a recipe, or
            vectorised ones cannot answer it.
    """
    options = resolved(options, stored.num_devices, recipes)
    setting = setting_of(options, stored.num_devices, recipes)
    if not recipes or not all(recipe.has_budget for recipe in recipes):
        setting.check()
    algorithm = algorithm_of(options, stored, fingerprint, recipes)
    if isinstance(algorithm, custom_recipes.CustomRecipes):
        check_recipes(options, algorithm.approval, algorithm.recipes)
        cohort = algorithm.plan.sampler.cohort_size
        for path, recipe in zip(options.recipe, algorithm.recipes, strict=False):
            if recipe.minimum_cohort > cohort and not options.ask_refused:
                raise ValueError(
                    f"{path}: minimumCohort is {recipe.minimum_cohort:,}, and a query "
                    f"is asked of {cohort:,} of {stored.num_devices:,} devices, so "
                    "that no sum would be released; without privacyBudget a recipe "
                    "gets one that fits"
                )
    return Prepared(algorithm, stored, setting)


def algorithm_of(
    options: statistics_options.StatisticsOptions,
    stored: events.NGramEvents | device_table.DeviceTable,
    fingerprint: str,
    recipes: Sequence[recipe_lib.Recipe] = (),
) -> analysis.Analysis[Any]:
    """Returns the analysis of devices that store some events.

    Args:
        options: The options of the analysis.
        stored: The events; the known words are those of their vocabulary.
        fingerprint: Fingerprint of the typed text.
        recipes: Custom recipes, if any.

    Raises:
        ValueError: See `prepare`.
    """
    options = resolved(options, stored.num_devices, recipes)
    table = stored if isinstance(stored, device_table.DeviceTable) else None
    approval = approval_of(options, table)
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
        expected = analysis.reports_expected(sampler.cohort_size, options.drop_out)
        asked = 1 if options.cohorts == "disjoint" else queries
        recipes = [
            _with_budget(approval, recipe, asked, expected) for recipe in recipes
        ]
        return custom_recipes.CustomRecipes(*common, recipes=recipes, **named)
    tightest = _of_analysis(options, approval.policy)
    if options.cohorts == "everybody" and tightest.limits.reports < queries:
        raise ValueError(
            f"--cohorts=everybody asks every device {sizing.counted(queries)}, and "
            f"--policy={options.policy} allows {tightest.limits.reports} reports: "
            "allow as many, or take --cohorts=disjoint"
        )
    epsilon = analysis.query_epsilon(
        tightest,
        1 if options.cohorts == "disjoint" else queries,
        analysis.reports_expected(sampler.cohort_size, options.drop_out),
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
    found = ""
    if setting.holders is not None:
        found = (
            f" A value that {setting.holders:,} devices report ({setting.share:.2%}) "
            "is found nine times in ten."
        )
    is_real = isinstance(algorithm.devices, fleet.DeviceFleet)
    if is_real and sampler.num_clients > _MANY_DEVICES:
        found += (
            " --devices=vectorised makes the same decisions more than 10 times as fast."
        )
    return (
        f"{sampler.num_clients:,} devices, {sampler.cohort_size:,} asked a query "
        f"(--cohorts={'everybody' if setting.is_everybody else 'disjoint'}); "
        f"at most {sizing.counted(setting.queries)} with an aggregate epsilon of "
        f"{first.aggregate_epsilon:g} (delta {algorithm.approval.policy.delta:g}), "
        f"each of at least {first.minimum_cohort:,} reports with a local epsilon of "
        f"{first.local_epsilon:.4g}. The first is about {first.content.num_cells:,} "
        f"cells.{found}"
    )
