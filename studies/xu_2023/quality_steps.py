"""Runs of the study of quality: ways of training, and settings that are tried.

`xu_2023_quality` runs them.
"""

import dataclasses
from collections.abc import Sequence

from federated_hh.reports import plots
from studies import training_runs

# The noise a client of 6,500 clients at a noise multiplier of 7, with 100 clients.
NOISE = f"--noise_multiplier={7 / 65!r}"
# Of some 20 rounds, in which the loss falls by less than 0.01 in the end; of as large a
# part of central training's steps. Not chosen by trying others.
_AVERAGE, _OF_STEPS = "--model_average=0.95", "--model_average=0.998"
# Two shards have a fifth of the bloggers.
_OF_FEW = ("--num_rounds=100", "--max_participation=5", "--min_separation=18")
CHAT, JUDGED = "chat", "judged"
FEDAVG, PLATEAU = "fedavg", "fedavg_plateau"
# What follows the name of a way of training where it begins with the chat's model.
PRETRAINED = "_pretrained"
TRAIN, CENTRALLY = "training.run_training", "training.pretrain"
JUDGE = "training.evaluate_keyboard"


@dataclasses.dataclass(frozen=True)
class Step(training_runs.Setting):
    """A run of the study, of one program or another.

    Attributes:
        program: Module of its program.
        begins_with: The setting whose model it begins with; None for first weights.
        times: Factor of the study's rounds, and of a client's participations.
    """

    program: str = TRAIN
    begins_with: str | None = None
    times: int = 1

    def lasting(self, num_rounds: int, max_participation: int) -> "Step":
        """Returns this step with rounds and participations given by flags.

        Args:
            num_rounds: Rounds of the study.
            max_participation: Participations of a client in them, at most.
        """
        flags = (
            f"--num_rounds={self.times * num_rounds}",
            f"--max_participation={self.times * max_participation}",
        )
        return dataclasses.replace(self, flags=(*self.flags, *flags))


# Comes last: what the others have left is judged, side by side.
JUDGING = Step(JUDGED, JUDGED, (), plots.INK, program=JUDGE)


def _both(scratch: Step) -> list[Step]:
    """Returns a way of training, from scratch and pretrained."""
    pretrained = dataclasses.replace(
        scratch,
        name=f"{scratch.name}{PRETRAINED}",
        label=f"{scratch.label}, pretrained",
        line=":",
        begins_with=CHAT,
    )
    return [scratch, pretrained]


def _federated(name: str, label: str, color: str, *flags: str) -> list[Step]:
    """Returns a way of federated training, from scratch and pretrained."""
    return _both(Step(name, label, (*flags, _AVERAGE), color))


STEPS: tuple[Step, ...] = (
    Step(
        CHAT,
        "public chat alone",
        ("--num_epochs=2",),
        plots.MUTED,
        program=CENTRALLY,
    ),
    *_both(
        Step(
            "central",
            "trained centrally",
            ("--num_epochs=2", _OF_STEPS),
            plots.INK,
            program=CENTRALLY,
        )
    ),
    *_federated(FEDAVG, "FedAvg", plots.GREEN, "--mechanism=fedavg"),
    # What federated training has to gain by more rounds alone: no setting is another.
    Step(
        PLATEAU,
        "FedAvg, three times the rounds",
        ("--mechanism=fedavg", _AVERAGE),
        plots.GREEN,
        "--",
        times=3,
    ),
    *_federated("dp_ftrl", "DP-FTRL", plots.BLUE, "--mechanism=dp_ftrl", NOISE),
    *_federated(
        "dp_ftrl_adaptive",
        "DP-FTRL, adaptive clip",
        plots.PURPLE,
        "--mechanism=dp_ftrl",
        NOISE,
        "--adaptive_clip",
        "--clip_norm=0.2",
        "--first_restart=32",
        "--restart_period=128",
        # The only one that was tried with it.
        "--client_learning_rate=3",
    ),
    *_federated("dp_fedavg", "DP-FedAvg", plots.ORANGE, "--mechanism=dp_fedavg", NOISE),
)


# Of the server's rate, the line.
_LINES = {0.25: "-.", 0.5: "--", 1.0: ":", 2.0: "-", 4.0: "--", 8.0: "-."}


def _choice(
    name: str, label: str, flags: Sequence[str], color: str, rate: float, server: float
) -> Step:
    """Returns a setting that is tried, at a rate of clients and one of the server."""
    return Step(
        f"{name}clients_{rate:g}_server_{server:g}",
        f"{label}clients' rate {rate:g}, server's {server:g}",
        (
            *flags,
            f"--client_learning_rate={rate!r}",
            f"--server_learning_rate={server!r}",
            *_OF_FEW,
        ),
        color,
        _LINES[server],
    )


def choices() -> tuple[Step, ...]:
    """Returns the settings of which some are chosen: clips, rates of both sides."""
    noisy = ("--mechanism=dp_ftrl", NOISE)
    twice = ("clip_2_", "clip norm 2, ", (*noisy, "--clip_norm=2"), plots.INK)
    starts = ("--first_restart=16", "--restart_period=32")
    adapts = ("--adaptive_clip", "--clip_norm=0.2", *starts)
    adaptive = ("adaptive_", "adaptive clip, ", (*noisy, *adapts), plots.PURPLE)
    unclipped = ("--mechanism=fedavg", "--clip_norm=100")
    plain = ("fedavg_", "FedAvg, no clip, ", unclipped, plots.MUTED)
    # Its noise adds up over rounds, so a lower rate may be better.
    alone = ("--mechanism=dp_fedavg", NOISE)
    adds_up = ("dp_fedavg_", "DP-FedAvg, ", alone, plots.PINK)
    rates = {1.0: plots.BLUE, 3.0: plots.ORANGE, 6.0: plots.GREEN}
    return (
        *(
            _choice("", "", noisy, color, rate, server)
            for rate, color in rates.items()
            for server in (1.0, 2.0, 4.0, 8.0)
            if server < 8 or rate == 3
        ),
        *(_choice(*adds_up, 6.0, server) for server in (0.25, 0.5, 1.0, 2.0)),
        *(
            _choice(
                f"fedavg_clip_{norm}_",
                f"FedAvg, clip norm {norm}, ",
                ("--mechanism=fedavg", f"--clip_norm={norm}"),
                plots.TEAL,
                6.0,
                server,
            )
            for norm, server in ((1, 4.0), (1, 8.0), (2, 1.0), (2, 2.0))
        ),
        _choice(*adaptive, 3.0, 4.0),
        _choice(*twice, 3.0, 4.0),
        _choice(*plain, 3.0, 2.0),
        _choice(*plain, 3.0, 4.0),
    )
