"""The page of section 2.5's strategy: each step's decision, and its reason."""

import math
from typing import Any

import pandas as pd

from federated_hh.privacy import drawn_noise, rounding
from studies import pages
from studies.xu_2023.gboard_options import Options
from studies.xu_2023.gboard_privacy import Decisions


def experiment(name: str) -> float | tuple[float, ...]:
    """Returns an experiment's numbers, given its setting's name.

    Args:
        name: Name such as `noise_0.01` or `rate_2_quantile_0.5`.
    """
    first, *others = map(float, name.split("_")[1::2])
    return (first, *others) if others else first


def page(
    title: str,
    options: Options,
    found: Decisions,
    table: pd.DataFrame,
    epsilon: drawn_noise.DrawnEpsilon,
) -> bytes:
    """Returns the page.

    Args:
        title: Its title.
        options: The strategy's options.
        found: Its decisions.
        table: A row a round of each experiment, with its setting.
        epsilon: The epsilon of the final run at `options.delta`.
    """
    steps = [
        _pretraining(options),
        _noise(options, found, table),
        _scaling(options, found),
        _timer(found),
        _clip(options, found, table),
        _privacy(options, found, epsilon),
    ]
    columns: dict[str, pages.Cell] = {
        "experiment": "{setting}",
        "held-out loss": lambda row: _shown(row["held_out_loss"]),
        "clip norm": "{clip_norm:.3g}",
        "tracked norm": "{tracked_norm:.3g}",
    }
    # The last row of each, nan and all.
    last = table.drop_duplicates("setting", keep="last").set_index("setting")
    last = last.loc[table["setting"].drop_duplicates()].reset_index()
    return pages.page(
        title,
        *(f"**{name}** {text}" for name, text in steps),
        "The final run: `scripts/run training --flagfile=final.flagfile`. "
        f"Its seed is {found.seed}, which no experiment had, so almost all its held-"
        "out clients had no part in choosing rate and noise.",
        pages.table(columns, last.to_dict("records")),
    )


def _pretraining(options) -> tuple[str, str]:
    if options.initial_model is None:
        return (
            "(1) Pretraining.",
            "None: --initial_model names no model, so the flagfile's start is kept. A "
            "model of public text would need fewer rounds.",
        )
    return (
        "(1) Pretraining.",
        f"All runs begin with {options.initial_model}, which counts as public: step "
        "(7) leaves out what it has learned. The runs' statements say whether its text "
        "shares anything with the clients' text.",
    )


def _noise(options, found, table) -> tuple[str, str]:
    losses = _losses(table, "noise")
    told = "; ".join(
        f"z = {noise:g} m: {_shown(loss)}" for noise, loss in losses.items()
    )
    allowed = next(iter(losses.values())) * (1 + options.loss_tolerance)
    reason = f"the largest whose held-out loss is at most {allowed:.4f}"
    if found.noise_per_client == max(losses):
        reason += ", and the largest that was tried; more may do as well"
    return (
        "(2) Noise that the model bears.",
        f"z = {found.noise_per_client:g} m: {reason}, {options.loss_tolerance:.1%} "
        f"above that of the least noise, at a report goal of "
        f"{options.small_report_goal:,} ({told}). The paper uses public data for this. "
        "Here the private population is simulated, and no guarantee counts it.",
    )


def _scaling(options, found) -> tuple[str, str]:
    choice = found.choice
    goal = f"Report goal {choice.report_goal:,}, z = {choice.noise_multiplier:g}"
    target = f"zCDP {options.target_rho:g} for {options.num_rounds:,} rounds"
    if choice.is_scaled:
        reason = (
            "noise and report goal grow in proportion, to the smallest goal tried that "
            f"has {target}, up to {options.largest_report_goal:,}"
        )
    else:
        needed = choice.noise_multiplier / (found.noise_per_client * choice.report_goal)
        reason = (
            f"{target} is unachievable with noise in proportion to any possible report "
            "goal. So the goal is the largest, and its noise is raised to "
            f"{needed:.3g} times what the model bears. Expect a worse model"
        )
    return (
        "(3) Report goal and noise.",
        f"{goal}: {reason}. The population has {found.num_clients:,} clients.",
    )


def _timer(found) -> tuple[str, str]:
    choice = found.choice
    clock = choice.participation
    told = "; ".join(
        f"{hours} hours: {'too few clients' if least is None else f'MinS {least:,}'}"
        for hours, least in clock.looked_at
    )
    text = (
        f"A timer of {clock.timer_hours} hours, MinS {clock.min_separation:,}, MaxP "
        f"{clock.max_participation}: the cheapest of the timers tried ({told}). The "
        f"population allows a MinS of at most {choice.largest_min_separation:,} "
        "(rounds strictly between two participations of a client). All rounds take "
        f"{clock.hours:,.0f} simulated hours."
    )
    return "(4) MinS and timer.", text


def _clip(options, found, table) -> tuple[str, str]:
    losses = _losses(table, "rate")
    told = "; ".join(
        f"{rate:g} at quantile {quantile:g}: {_shown(loss)}"
        for (rate, quantile), loss in losses.items()
    )
    rates = [rate for rate, _ in losses]
    beyond = ""
    if found.server_learning_rate == max(rates):
        beyond = ", and is the largest that was tried; a larger one may do better"
    elif found.server_learning_rate == min(rates):
        beyond = ", and is the least that was tried; a smaller one may do better"
    quantiles = {quantile for _, quantile in losses}
    if len(quantiles) > 1 and found.target_quantile in (min(quantiles), max(quantiles)):
        side = "largest" if found.target_quantile == max(quantiles) else "least"
        beyond += (
            f". The quantile is the {side} that was tried; one beyond it may do better"
        )
    return (
        "(5, 6) Clip norm and server learning rate.",
        f"Clip norm {found.clip_norm:g}, server learning rate "
        f"{found.server_learning_rate:g}: of the experiments in which the clip norm "
        "adapts (Algorithm 1, report goal "
        f"{options.small_report_goal:,}), that rate has the least held-out loss "
        f"({told}){beyond}. The clip norm is the {found.target_quantile:g} quantile "
        "of updates' norms as its run estimates it: the median over the last quarter "
        "of the rounds, because one round's estimate has the noise of few clients. It "
        "is fixed from here on; an adaptive one costs restarts and noise.",
    )


def _privacy(options, found, epsilon) -> tuple[str, str]:
    choice = found.choice
    rho = rounding.rounded_up_to(choice.rho, 4)
    shown = rounding.rounded_up_to(epsilon.epsilon, 2)
    kind = "" if epsilon.is_proved else " (an estimate; zCDP is that of Gaussian noise)"
    return (
        "(7) Privacy.",
        f"zCDP {rho}, epsilon {shown} at delta {options.delta:g}{kind}, for "
        "zero-out of one client. It is the worst participation within MinS and MaxP, "
        "which the final run enforces. Experiments, and choices made from them, are "
        "not counted. The sums are secure sums.",
    )


def _shown(loss: float) -> str:
    return f"{loss:.4f}" if math.isfinite(loss) else "not finite"


def _losses(table: pd.DataFrame, kind: str) -> dict[Any, float]:
    """Returns the last losses of a kind of experiments, by what they differ in."""
    last = table.groupby("setting", sort=False)["held_out_loss"].last()
    return {
        experiment(name): loss
        for name, loss in last.items()
        if name.startswith(f"{kind}_")
    }
