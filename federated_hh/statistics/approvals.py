"""The devices' approval, from a run's options, and recipes and tables that fit it."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from federated_hh.options import fields as fields_lib
from federated_hh.populations.options import population_options
from federated_hh.privacy.local import device_policy, query_sizing
from federated_hh.statistics import options as statistics_options
from federated_hh.statistics.devices import device, policy_file, vector_fleet
from federated_hh.statistics.recipes import device_table, events, store, verification
from federated_hh.statistics.recipes import recipe as recipe_lib

# As in the paper's figure 4.
_COHORTS = ("locale",)


def approval_of(
    options: statistics_options.StatisticsOptions,
    table: device_table.DeviceTable | None = None,
    policy: device.Approval | None = None,
) -> device.Approval:
    """Returns the approval that ships with every device, or that of the policy file.

    Args:
        options: The options; their cohorts "auto" count as disjoint.
        table: The devices' custom table, if any.
        policy: The policy file's, if it is read already.

    Raises:
        ValueError: See `policy_of`.
    """
    if policy := policy or policy_of(options):
        return policy
    identifier, _, columns = statistics_options.APPROVED[options.analysis]
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


def policy_of(options: statistics_options.StatisticsOptions) -> device.Approval | None:
    """Returns the policy file's approval; None without such a file.

    Args:
        options: The options.

    Raises:
        ValueError: If the file has no policy, or none that goes with the analysis.
    """
    if not options.policy:
        return None
    found = policy_file.read(options.policy)
    approved = found.query_class
    _, name, columns = statistics_options.APPROVED[options.analysis]
    if approved.stream.name != name and not options.table:
        raise ValueError(
            f"{options.policy} is about the table {approved.stream.name}; give "
            f"its rows by --table, or the table {name}"
        )
    is_asked = not (options.recipe or options.print_policy)
    if is_asked and not approved.fields.issuperset(columns):
        raise ValueError(
            f"{options.policy} does not approve what --analysis={options.analysis} "
            f"reads, {', '.join(columns)} of {name}: {policy_file.told(found)}"
        )
    return found


def read_table(
    options: statistics_options.StatisticsOptions,
    files: population_options.PopulationOptions,
    policy: device.Approval | None = None,
) -> device_table.DeviceTable | None:
    """Returns the devices' custom table; None without one.

    Args:
        options: The options; their policy names the table and its columns.
        files: The options of the file.
        policy: See `approval_of`.

    Raises:
        ValueError: If the table or the policy cannot be read.
    """
    if options.table is None:
        return None
    policy = policy or policy_of(options)
    stream = policy.query_class.stream if policy else None
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
    table: device_table.DeviceTable | None = None,
) -> None:
    """Checks that devices will not refuse a recipe, and can answer it.

    Args:
        options: The options, with the recipes' files.
        approval: Approval that ships with each device.
        recipes: The recipes; one without a budget is checked but for that.
        table: The devices' custom table, if any.

    Raises:
        ValueError: If they will, with what is approved, or if a column is not of the
            type of its cells, so that all answers would be "(other)".
    """
    errors: list[ValueError] = []
    for number, recipe in enumerate(recipes):
        earlier = recipes[:number] if options.cohorts == "everybody" else ()
        found = device.refusal(approval, recipe, earlier)
        if found is None and options.devices != "real":
            name = approval.query_class.stream.name
            try:
                vector_fleet.check_plain(recipe.query, name)
            except ValueError as error:
                errors.append(ValueError(f"{options.recipe[number]}: {error}"))
        if found is None:
            try:
                _check_types(approval.query_class.stream, recipe, table)
            except ValueError as error:
                errors.append(ValueError(f"{options.recipe[number]}: {error}"))
        if found is not None and not options.ask_refused:
            errors.append(
                ValueError(
                    f"{options.recipe[number]}: devices would refuse it: "
                    f"{found}{_least_cohort(approval.policy, recipe, str(found))}; "
                    f"{policy_file.told(approval)}. --policy=FILE approves "
                    "other things; a recipe without privacyBudget gets one that fits"
                )
            )
    fields_lib.raise_all(errors)


def _least_cohort(
    policy: device_policy.Policy, recipe: recipe_lib.Recipe, refusal: str
) -> str:
    """Returns the minimum cohort that check 3 would accept, in words; else ""."""
    if not refusal.startswith("check 3"):
        return ""
    try:
        least = device_policy.minimum_cohort(
            policy.randomizer, recipe.local_units, recipe.aggregate_units, policy.delta
        )
    except ValueError:
        return "; no minimumCohort would do"
    return f"; minimumCohort has to be at least {least:,}"


def _check_types(
    stream: store.EventStream,
    recipe: recipe_lib.Recipe,
    table: device_table.DeviceTable | None,
) -> None:
    """Refuses numbers for a column of texts, and texts for a column of numbers."""
    selected = verification.plain_columns(recipe.query)
    counted = recipe.content.types
    for column, cells in counted.items():
        kind = stream.fields.get(column) if column in selected else None
        if kind is None or cells.of_texts == (kind == "TEXT"):
            continue
        named = type(cells).__name__
        if cells.of_texts:
            raise ValueError(
                f"{column} has numbers ({kind}), and {named} counts texts: all answers "
                "would be (other). Take BucketedType, or a policy with the type TEXT"
            )
        raise ValueError(
            f"{column} has texts (TEXT), and {named} counts numbers: all answers would "
            f"be (other). {_why_text(column, table)}"
        )
    numbers = [column for column, cells in counted.items() if not cells.of_texts]
    if wrong := verification.text_as_number(recipe.query, stream.fields, numbers):
        column, what = wrong
        raise ValueError(
            f"{column} has texts (TEXT), and the query {what}: its answers would be "
            f"wrong. {_why_text(column, table)}; a text is compared with one in "
            "quotes, such as '10'"
        )


def _why_text(column: str, table: device_table.DeviceTable | None) -> str:
    """Returns the reason why a column has texts, and what to do."""
    if first := table.first_texts.get(column) if table else None:
        line, cell = first
        return (
            f"It is TEXT, as line {line} has {cell[:60]!r}, which is no number"
            f"{device_table.comma_advice(cell)}"
        )
    return "It is TEXT: its policy says so; change the type to REAL"


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


def of_analysis(
    options: statistics_options.StatisticsOptions, policy: device_policy.Policy
) -> device_policy.Policy:
    """Returns a policy with the limits of the columns that an analysis reads."""
    columns = statistics_options.APPROVED[options.analysis][2]
    return _tightest(policy, columns, once=("age",))


def of_recipe(
    approval: device.Approval, recipe: recipe_lib.Recipe
) -> device_policy.Policy | None:
    """Returns the policy with the limits of the columns that a recipe reads.

    None where devices refuse the recipe, whatever its budget.
    """
    with verification.Sandbox(approval.query_class) as sandbox:
        try:
            return _tightest(approval.policy, approval.verify(recipe, sandbox))
        except device.RecipeRefusedError:
            return None


def with_budget(
    approval: device.Approval,
    recipe: recipe_lib.Recipe,
    queries: int,
    cohort_size: int,
) -> recipe_lib.Recipe:
    """Returns a recipe with the largest budget that devices allow, if it has none."""
    if recipe.has_budget:
        return recipe
    policy = approval.policy
    tightest = of_recipe(approval, recipe)
    if tightest is None:
        limit = policy.limits
        return dataclasses.replace(
            recipe,
            local_units=device_policy.units_of(limit.local_epsilon, "epsilon"),
            aggregate_units=device_policy.units_of(limit.aggregate_epsilon, "epsilon"),
            minimum_cohort=2,
        )
    epsilon = query_sizing.query_epsilon(tightest, queries, cohort_size)
    local_units, minimum = query_sizing.report_budget(
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
