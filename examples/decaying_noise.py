"""A new mechanism for training: independent noise with a decaying scale.

scripts/run algorithm --algorithm=examples.decaying_noise:Training \
    --num_clients=300 --num_rounds=5 --decay=0.9
"""

import dataclasses

from federated_hh.options.fields import option
from federated_hh.populations import client_sentences
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.dp_ftrl import update_noise
from federated_hh.rounds import timers
from training.federated import dp_ftrl, preparation, server_optimizers
from training.federated import options as training_options


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
    """Options of the training."""

    num_rounds: int = option(10, "Rounds.", least=1, most=10_000)
    cohort_size: int = option(20, "Clients of a round.", least=1, most=2**31 - 1)
    noise_multiplier: float = option(
        1.0, "Noise of the first round.", least=0.01, most=1e3
    )
    decay: float = option(0.9, "Decay of the noise, a round.", least=0.1, most=1)
    vocabulary_size: int = option(500, "Words.", least=10, most=20_000)


class Training(dp_ftrl.DpFtrl):
    """Federated training of a small language model with decaying noise."""

    Options, contents = Options, "sentences"

    @classmethod
    def of(cls, options, people, cache, seed):
        words = vocabulary_lib.Vocabulary.of_language(options.vocabulary_size)
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        text = client_sentences.prepare(people, words, tokenizer, cache)
        small = training_options.TrainingOptions(
            mechanism="fedavg",  # whose noise is ours, below
            cohort_size=options.cohort_size,
            num_units=32,
            embedding_size=16,
            num_held_out_clients=10,
        )
        prepared = preparation.prepare(small, words, text, seed)
        noise = DecayingNoise(
            num_rounds=options.num_rounds,
            clip_norm=1.0,
            noise_multiplier=options.noise_multiplier,
            decay=options.decay,
        )
        sampler = timers.Timers(
            num_clients=len(prepared.clients.training),
            cohort_size=options.cohort_size,
            num_rounds=options.num_rounds,
        )
        plan = training_plan.plan_of(sampler, noise)
        return prepared.algorithm(plan, server_optimizers.Sgdm())
