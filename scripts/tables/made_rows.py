"""Rows of the documents' tables that are put together or computed; see tables.toml."""

import dataclasses
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from federated_hh.privacy import rounding
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1
from federated_hh.runtime.masking import graph
from scripts.tables.render import RESULTS, Row, joined, rows
from studies import training_runs
from studies.mcmillan_2022 import trust_models as mcmillan_2022_trust_models
from studies.xu_2023 import quality_steps as xu_2023_quality_steps
from training.models import metric_names

Found = dict[str, Any]

_BACKENDS = ("in_process", "ray 1", "ray 2", "ray 4")
_MASKED_COHORTS = (100, 1000, 6500, 10**5, 10**6)
# Shares that drop out and that collude.
_SHARES = ((0.05, 0.05), (0.3, 0.05), (0.05, 0.33), (0.33, 0.33))
_ANALYSES = {
    "ngrams": "of the top 100 3-grams",
    "joint": "of the top 100 pairs of age and 3-gram",
    "distribution": "largest error of the share below a value",
}
# Xu et al. 2023, Section 1: of models of 10, 20 and 30 thousand words.
_PAPER_PARAMETERS = ("2.4 M", "4.4 M", "6.4 M")
_ON_A_KEYBOARD = (
    "three_suggestions",
    "picked_rate",
    "keystrokes_saved",
    "trigger_rate",
    "word_modified_before",
    "word_modified_after",
)
# Kinds of the papers' privacy numbers.
_KIND = re.compile(r"(Table|Figure) \d|[\w-]+")
_GOALS = (500, 1000, 2000, 4000, 6500, 10_000, 20_000)
# Beginnings of the settings' names in the study of rates.
_CHOICES = {
    "": "DP-FTRL, clip norm 1",
    "clip_2_": "DP-FTRL, clip norm 2",
    "adaptive_": "DP-FTRL, adaptive clip",
    "fedavg_": "FedAvg, no clip",
    "fedavg_clip_1_": "FedAvg, clip norm 1",
    "fedavg_clip_2_": "FedAvg, clip norm 2",
    "dp_fedavg_": "DP-FedAvg, clip norm 1",
}
# Studies of report goals, by their noise a client.
_SCALING = {
    "noise_1": "the paper's noise a client",
    "noise_5": "5 times the paper's",
    "noise_20": "20 times the paper's",
}


def randomizers() -> Iterator[Found]:
    """Yields the local randomizers, with their guarantees."""
    for row in rows("randomizers/side_by_side"):
        guarantee = f"replacement {row['replacement_epsilon']:g}"
        name = row["randomizer"].removesuffix(", deletion")
        if name != row["randomizer"]:
            guarantee = f"deletion {row['epsilon']:g} = {guarantee}"
        elif name == "symmetric one-hot":
            guarantee += f" = deletion {row['replacement_epsilon'] / 2:g}"
        yield {
            **row,
            "name": name.replace("k-ary response", "k-ary randomized response"),
            "guarantee": guarantee,
            "seconds_per_report": row["cpu_microseconds_per_report"] / 1e6,
        }


def client_training() -> Iterator[Found]:
    """Yields the cost of a client's training in several ways: medians of repeats.

    `to_pfl` is its ratio to pfl-research's in the same repeat, in brackets.
    """
    repeats: dict[tuple[str, str], list[float]] = {}
    for row in rows("benchmark_training/clients"):
        key = row["workload"], row["way"]
        repeats.setdefault(key, []).append(row["cpu_seconds_per_client"])
    for (workload, way), found in repeats.items():
        to_pfl = ""
        if theirs := repeats.get((workload, "pfl-research")):
            ratio = statistics.median(map(operator.truediv, found, theirs))
            to_pfl = f" ({ratio:.2f})"
        yield {
            "workload": workload,
            "way": way,
            "seconds": statistics.median(found),
            "to_pfl": to_pfl,
        }


def masked_graphs() -> Iterator[Found]:
    """Yields neighbours and thresholds, by cohort and shares."""
    for clients in _MASKED_COHORTS:
        for dropout, corrupt in _SHARES:
            found = graph.choose(graph.Needs.of_shares(clients, dropout, corrupt))
            yield {
                "clients": clients,
                "dropout": dropout,
                "corrupt": corrupt,
                "neighbours": found.neighbours,
                "threshold": found.threshold,
            }


def scale() -> Iterator[Found]:
    """Yields the seconds of rounds by back end, against those of one worker."""
    for folder in ("benchmark_scale", "benchmark_scale_training"):
        cost = rows(f"{folder}/cost")
        key = "rounds of", "clients"
        seconds = {(*(row[k] for k in key), row["backend"]): row for row in cost}
        for row in cost:
            if row["backend"] != "worker":
                continue
            for name in _BACKENDS:
                other = seconds.get((*(row[k] for k in key), name))
                worker, shown = row["seconds_per_round"], ""
                if other is not None:
                    taken = other["seconds_per_round"]
                    shown = f"{taken:.2f} s ({taken / worker:.2f})"
                yield {
                    **row,
                    "folder": folder,
                    "backend": name,
                    "shown": shown,
                    "worker_seconds": worker,
                    "worker_gib": row["peak_own_gib"],
                }


def triehh_parameters() -> Iterator[Found]:
    """Yields TrieHH's parameters by the paper's corollary and by the curve."""
    powers = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    for clients, epsilon, digits in ((6, 2, 12), (6, 4, 12), (5, 4, 10)):
        n, delta = ("10" + str(p).translate(powers) for p in (clients, -digits))
        row: dict[str, Any] = {"setting": f"{n}, 10, ({epsilon}, {delta})"}
        solvers = {"theorem1": triehh_theorem1, "solver": triehh_solver}
        for name, module in solvers.items():
            found = module.solve_parameters(
                population_size=10**clients,
                max_length=10,
                epsilon=float(epsilon),
                delta=10.0**-digits,
            )
            row[name] = f"{found.threshold}, {found.cohort_size:,}"
            row[f"{name}_holders"] = triehh_solver.holders_needed(found, 0.9)
        yield row


def zhu_table2() -> Iterator[Found]:
    """Yields recall and precision as printed and as counted, beside the paper's."""
    counted = {(r["line"], r["epsilon"]): r for r in rows("zhu_table2/summary")}
    for row in rows("zhu_table2_printed/summary"):
        recall, precision = row["paper_recall_at_50"], row["paper_precision"]
        paper = "" if math.isnan(recall) else f"{recall:g}, {precision:g}"
        other = counted[row["line"], row["epsilon"]]
        yield {**row, "paper": paper, **{f"counted_{n}": v for n, v in other.items()}}


def oov_table1() -> Iterator[Found]:
    """Yields the settings of Table 1 of Sun et al. 2024."""
    for row in joined("oov_table1/summary", "oov_table1_bloggers/summary", "bloggers_"):
        yield {**row, "name": row["setting"].replace(",", " sampler,", 1)}


def _sun_volume() -> dict[tuple[Any, ...], Found]:
    """Returns rows of sun_volume by topic, words, habits and name."""
    every = list(rows("sun_volume/coverage"))
    (power,) = {row["power"] for row in every if row["topic"] == "simulated"}
    return {
        (row["topic"], row["words"], row["habits"], row["row"]): row
        for row in every
        if row["power"] == power
    }


def sun_volume() -> Iterator[Found]:
    """Yields the rows of Table 1 of Sun et al. 2024, predicted and simulated."""
    found = _sun_volume()
    for (topic, words, habits, name), row in found.items():
        if topic == "simulated":
            predicted = found["grid", words, habits, name]["coverage"]
            yield {**row, "predicted": predicted}


def sun_volume_gap() -> Iterator[Found]:
    """Yields the coverage of both samplers by words and habits."""
    found = _sun_volume()
    for words in sorted({row["words"] for row in found.values()}):
        cells = {
            habits: " / ".join(
                f"{found[topic, words, habits, f'{sampler}, one pass']['coverage']:.1%}"
                for sampler in ("greedy", "random")
            )
            for topic, habits in (
                ("grid", "independent"),
                ("habits", "some"),
                ("habits", "bloggers'"),
            )
        }
        yield {"words": words, **cells, "bloggers": cells["bloggers'"]}


def sun_volume_epsilon() -> Iterator[Found]:
    """Yields the coverage of both samplers by epsilon."""
    found = [row for (topic, *_), row in _sun_volume().items() if topic == "epsilon"]
    for greedy, random in zip(found[::2], found[1::2], strict=True):
        epsilon = greedy["row"].rpartition(" ")[2].replace("inf", "infinite")
        gain = round(random["coverage"] - greedy["coverage"], 3) + 0.0  # not -0
        yield {**greedy, "name": epsilon, "random": random["coverage"], "gain": gain}


def finders_best() -> Iterator[Found]:
    """Yields the finder of the largest coverage, by trust, epsilon and population."""
    found: dict[tuple[str, float], Found] = {}
    for row in rows("finders/finders"):
        of = found.setdefault((row["trust"], row["epsilon"]), {})
        best = of.get(row["population"])
        if best is None or row["coverage"] > best["coverage"]:
            of[row["population"]] = row
    for (trust, epsilon), of in found.items():
        cells = {
            population: f"{best['finder']}: {best['words_real']:,.0f}"
            if best["words_real"]
            else "none"
            for population, best in of.items()
        }
        yield {"trust": trust, "epsilon": epsilon, **cells}


def oov_figure1() -> Iterator[Found]:
    """Yields the settings of Figure 1 of Sun et al. 2024."""
    for row in joined(
        "oov_figure1/summary", "oov_figure1_bloggers/summary", "bloggers_"
    ):
        name = row["setting"].removeprefix("epsilon ").replace("inf", "infinite")
        yield {**row, "name": name}


def oov_real_text() -> Iterator[Found]:
    """Yields coverage of words in real text that a large dictionary does not know."""
    found = {row["setting"]: row for row in rows("oov_real_text/summary")}
    for setting, row in found.items():
        name, _, epsilon = setting.partition(", epsilon ")
        if epsilon == "10":
            others = found[f"{name}, epsilon inf"].items()
            without = {f"without_{n}": value for n, value in others}
            yield {**row, **without, "name": name.replace("-", " ")}


def gains() -> list[Found]:
    """Returns the finds or the error of each way, at the same total privacy."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows("mcmillan_analyses/summary"):
        is_error = row["analysis"] == "distribution"
        metric = "largest_error" if is_error else "popular_found"
        form = ".2%" if is_error else ".1f"
        half = (row[f"{metric}_high"] - row[f"{metric}_low"]) / 2
        data = row["data"].partition(",")[0]
        way = "static" if row["approach"].startswith("static,") else row["approach"]
        key = row["analysis"], row["data"], way
        # Of the static grids the best.
        if key in found and found[key]["largest_error"] <= row["largest_error"]:
            continue
        found[key] = {
            **row,
            "way": way,
            "name": f"{_ANALYSES[row['analysis']]}: {data}, {row['clients']:,}",
            "gain": f"{row[metric]:{form}} ± {half:{form}}",
        }
    return list(found.values())


def minimum_cohorts() -> Iterator[Found]:
    """Yields the number of reports that have epsilon 1."""
    for row in rows("mcmillan_figure1/minimum_cohorts"):
        randomizer = row["randomizer"].replace("_", " ")
        yield {**row, "name": f"{row['bound'].split(',')[0]}, {randomizer}"}


def trust_models() -> Iterator[Found]:
    """Yields the error of one histogram under every trust model."""
    models = {model.name: model for model in mcmillan_2022_trust_models.MODELS}
    for row in rows("mcmillan_trust_models/errors"):
        model = models[row["model"]]
        yield {**row, "trusted": model.trusted, "left": model.left}


def _held_out(row: Row) -> Found:
    """Returns a run's row, its metrics those on held-out clients."""
    prefix = "held_out_"
    found = {n: value for n, value in row.items() if n.startswith(prefix)}
    return {**row, **{name.removeprefix(prefix): v for name, v in found.items()}}


def _baselines(file: str) -> list[Found]:
    return [{**row, "name": row["baseline"], "shown_epsilon": ""} for row in rows(file)]


def training_demo() -> list[Found]:
    """Returns the demo of training beside n-grams and, last, the best possible."""
    last = _held_out(rows("training_demo/metrics")[-1])
    epsilon = rounding.rounded_up_to(last["epsilon"], 1)
    rho = rounding.rounded_up_to(last["rho"], 2)
    name = f"DP-FTRL, epsilon {epsilon} at delta 1e-10 (zCDP {rho})"
    *counted, best = _baselines("training_demo/baselines")
    return [*counted, {**last, "name": name}, best]


def gboard_strategy() -> list[Found]:
    """Returns the final run of the walk of section 2.5 of Xu et al., and baselines."""
    last = _held_out(rows("xu_gboard_strategy/final_metrics")[-1])
    epsilon, rho = (rounding.rounded_up(last[n]) for n in ("epsilon", "rho"))
    name = f"the final run, epsilon {epsilon} (zCDP {rho})"
    baselines = _baselines("xu_gboard_strategy/final_baselines")
    return [{**last, "name": name}, *baselines]


def pretraining() -> Iterator[Found]:
    """Yields models of public chat on bloggers, before any private round."""
    for row in rows("pretraining/on_bloggers"):
        name = row["baseline"].replace("chat", "public chat")
        is_model = row["baseline"] == "chat"
        yield {**row, "name": f"trained centrally on {name}" if is_model else name}


def _on_bloggers() -> dict[str, Row]:
    """Returns the last round of each setting that was run on bloggers' sentences."""
    return {row["setting"]: row for row in rows("training_blogs/runs")}


def training_blogs() -> Iterator[Found]:
    """Yields the mechanisms' models of bloggers' sentences, and baselines."""
    last = _on_bloggers()
    for name, row in {
        "DP-FTRL, z = 2": last["dp_ftrl"],
        "DP-FTRL, z = 6": last["dp_ftrl_more_noise"],
        "DP-FedAvg, z = 2": last["dp_fedavg"],
        "FedAvg with the same clip, not private": last["fedavg"],
    }.items():
        epsilon = row.get("epsilon", math.inf)
        shown = rounding.rounded_up_to(epsilon, 1)
        shown = "none" if math.isinf(epsilon) else shown
        yield {**_held_out(row), "name": name, "shown_epsilon": shown}
    yield from _baselines("training_blogs/baselines")


def training_blt() -> Iterator[Found]:
    """Yields models by a tree and by correlated noise, at one epsilon or noise."""
    last = _on_bloggers()
    for name, setting in {
        "DP-FTRL, z = 2": "dp_ftrl",
        "BLT at its epsilon, z = 1.2587": "blt",
        "BLT at its noise, z = 2.516": "blt_less_epsilon",
    }.items():
        yield {**_held_out(last[setting]), "name": name}


def model_parameters() -> Iterator[Found]:
    """Yields the sizes of models with the paper's vocabularies."""
    from federated_hh.populations import vocabulary
    from training.models import model  # here: TensorFlow takes seconds to import

    sizes = {f"{k} x 1024": k * 1024 for k in (10, 20, 30)}
    sizes |= {f"{k},000": k * 1000 for k in (10, 20, 30)}
    special = len(vocabulary.SPECIAL_TOKENS)
    papers = [*_PAPER_PARAMETERS, "", "", ""]
    for (words, size), paper in zip(sizes.items(), papers, strict=True):
        count = model.cifg_language_model(size + special).num_parameters()
        yield {"words": words, "ours": count / 1e6, "paper": paper}


def keyboard_blogs() -> Iterator[Found]:
    """Yields models' metrics on a keyboard."""
    for row in rows("keyboard_blogs/scores"):
        if row["metric"] in _ON_A_KEYBOARD:
            half = (row["high"] - row["low"]) / 2
            yield {
                **row,
                "label": metric_names.KEYBOARD_LABELS[row["metric"]],
                "share": f"{100 * row['value']:.1f} ± {half:.1%}",
                "order": _ON_A_KEYBOARD.index(row["metric"]),
            }


def xu_figure4() -> list[Found]:
    """Returns zCDP by report goal and population, as in Figure 4a of Xu et al."""
    return [
        row
        for row in rows("xu_figure4/curves")
        if row["panel"] == "figure_4a" and row["report_goal"] in _GOALS
    ]


def xu_scaling() -> Iterator[Found]:
    """Yields the cost of noise in proportion to the report goal."""
    for folder, noise in _SCALING.items():
        for row in rows(f"xu_scaling/{folder}/summary"):
            if row["rho"] < math.inf:
                goal = int(row["setting"].rpartition("_")[2])
                yield {**row, "noise": noise, "goal": goal}


def rounds_saved() -> Iterator[Found]:
    """Yields the rounds that pretraining saves, by way of training and seed."""
    labels = {step.name: step.label for step in xu_2023_quality_steps.STEPS}
    for path in sorted(RESULTS.glob("xu_quality/seed_*/rounds_saved.csv")):
        folder = path.parent.name
        for row in rows(f"xu_quality/{folder}/rounds_saved"):
            saved = row["rounds"] - row["pretrained_rounds"]
            shown = {"label": labels[row["setting"]], "seed": folder.replace("_", " ")}
            yield {**row, **shown, "saved": saved}


def rate_choice() -> Iterator[Found]:
    """Yields loss and accuracy after 100 rounds, by clip and rates."""
    found = {}
    for path in sorted(RESULTS.glob("xu_quality_choice/*/runs.csv")):
        for row in rows(f"xu_quality_choice/{path.parent.name}/runs"):
            found[row["setting"]] = row
    for way, label in _CHOICES.items():
        for setting, row in found.items():
            before, _, rates = setting.partition("clients_")
            if before != way:
                continue
            client, _, server = rates.split("_")
            loss, suggestion = (
                row[f"held_out_{n}"] for n in ("loss", "one_suggestion")
            )
            shown = f"{loss:.3f}, {suggestion:.1%}"
            if loss >= training_runs.DIVERGED:
                shown = "diverges"
            rates = {"client": client, "server": server, "rate": float(server)}
            yield {"way": label, **rates, "shown": shown}


def paper_numbers() -> Iterator[Found]:
    """Yields the papers' privacy numbers, by kind and all; the counts of equal ones."""
    kinds: dict[str, list[paper_tables.TableRow]] = {}
    for row in paper_tables.all_rows():
        author, item = row.paper.partition(" ")[0], _KIND.match(row.item)
        if row.equal == "-":
            continue
        kinds.setdefault("all", []).append(row)
        if item:
            kinds.setdefault(f"{author}, {item[0]}", []).append(row)
    for kind, found in kinds.items():
        equal = sum(row.equal == "yes" for row in found)
        for row in found:
            of_all = {"kind": kind, "count": len(found), "equals": equal}
            yield {**dataclasses.asdict(row), **of_all}


def secagg_tradeoff() -> Iterator[Found]:
    """Yields models by the scale of their encoding."""
    for row in rows("xu_secagg/summary"):
        is_exact = row["setting"] == "exact"
        yield {**row, "s": "exact sums" if is_exact else f"{row['scale']:,.0f}"}


MAKERS: dict[str, Callable[[], Iterable[Found]]] = {
    made.__name__: made
    for made in (
        *(randomizers, client_training, masked_graphs, scale),
        *(triehh_parameters, zhu_table2, oov_table1, oov_figure1),
        *(sun_volume, sun_volume_gap, sun_volume_epsilon, finders_best),
        *(oov_real_text, gains),
        *(minimum_cohorts, trust_models, training_demo, gboard_strategy),
        *(pretraining, training_blogs, training_blt, model_parameters),
        *(keyboard_blogs, xu_figure4, xu_scaling, secagg_tradeoff, rounds_saved),
        *(rate_choice, paper_numbers),
    )
}
