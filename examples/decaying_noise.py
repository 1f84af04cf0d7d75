"""A new mechanism for training: independent noise with a decaying scale.

scripts/run rounds.run_algorithm --algorithm=examples.decaying_noise:Training \
    --num_clients=300 --num_rounds=5 --decay=0.9
"""

import dataclasses

import pandas as pd

from privacy import training_plan, update_noise
from rounds import timers
from simulation import population_options, sentence_tokenizers
from simulation.options import option
from training import client_sentences, client_update, dp_ftrl, examples, model
from training import vocabulary as vocabulary_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecayingNoise(update_noise.GaussianNoise):
    """Independent noise whose multiplier decays: later rounds cost more.

    Attributes:
        decay: From one round to the next, in (0, 1].
    """

    decay: float

    def multiplier(self, number: int) -> float:
        return self.noise_multiplier * self.decay**number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the training is asked for."""

    num_rounds: int = option(10, "Rounds.", least=1, most=10_000)
    report_goal: int = option(20, "Clients of a round.", least=1, most=2**31 - 1)
    noise_multiplier: float = option(1.0, "Of the first round.", least=0.01, most=1e3)
    decay: float = option(0.9, "Of the noise, a round.", least=0.1, most=1)
    vocabulary_size: int = option(500, "Words.", least=10, most=20_000)


class Training(dp_ftrl.DpFtrl):
    """Federated training of a small language model with decaying noise."""

    Options, contents = Options, "sentences"

    @classmethod
    def of(cls, options, population_options_, cache, seed):
        words = vocabulary_lib.Vocabulary.from_english(options.vocabulary_size)
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        language = population_options.LanguageOptions()
        text = client_sentences.prepare(
            population_options_, words, tokenizer, cache, language
        )
        network = model.cifg_language_model(
            words.num_tokens, num_units=32, projection_size=16, embedding_size=16
        )
        limits = examples.ClientLimits(20, 10, 10)
        rounds = client_update.FederatedRounds(
            network,
            examples.MappedText(text, limits),
            client_update.LocalTraining(0.5),
        )
        sampler = timers.Timers(
            num_clients=text.num_clients,
            cohort_size=options.report_goal,
            num_rounds=options.num_rounds,
        )
        noise = DecayingNoise(
            num_rounds=options.num_rounds,
            clip_norm=1.0,
            noise_multiplier=options.noise_multiplier,
            decay=options.decay,
        )
        plan = training_plan.plan_of(sampler, noise)
        return cls(rounds, plan, network.initial_weights(seed))

    def results(self, state):
        sizes = {name: part.size for name, part in state.weights.items()}
        return {"weights": pd.DataFrame(sizes.items(), columns=["name", "size"])}
