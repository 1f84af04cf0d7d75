"""The settings of a model and of the text that it reads."""

import dataclasses
from typing import TYPE_CHECKING

from federated_hh.options.fields import OptionError, option
from federated_hh.populations.options.population_options import PopulationOptions

if TYPE_CHECKING:  # they import NumPy and TensorFlow
    from federated_hh.populations.vocabulary import Vocabulary
    from training.models.model import LanguageModel

# Largest number of rounds, clients or sentences, as a 32-bit integer.
LARGEST_COUNT = 2**31 - 1
# Learning rates above this make any model, and any clip norm, infinite.
LARGEST_RATE = 1e6
# No keyboard's model has a larger layer. Memory is the closer limit: see
# `memory_needs`.
_LARGEST_LAYER = 2**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomModelsOptions:
    """The user's consent to the code of custom models that a program reads."""

    custom_models: tuple[str, ...] = option(
        (),
        "Functions that make the custom models among those read, as module:function: "
        "their code runs. A run has its function's name in flags.txt, as --model.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of the model, its initial weights, and the limits on a client's text.

    Base of the settings of federated and central training, which check it.
    """

    vocabulary: str | None = option(
        None,
        "A vocabulary file: <pad>, <oov>, <bos>, <eos>, then one word a line. Or "
        "text:FILE, the --vocabulary_size most frequent words of a public text of "
        "yours: .txt, or a format and --text_column as --population has them. By "
        "default those of wordfreq's public list of --language.",
    )
    vocabulary_size: int = option(
        10000,
        "Words, where --vocabulary is not given: of the 100,000 most frequent.",
        least=1,
        most=100_000,
    )
    model: str | None = option(
        None,
        "A custom model, as module:function: of the number of tokens and the "
        "length of a sequence, returns an uncompiled tf.keras.Model from tokens to "
        "logits. By default a CIFG-LSTM of --num_units and --embedding_size.",
    )
    onednn: bool | None = option(
        None,
        "Let TensorFlow use oneDNN's kernels; by default on processors with bfloat16 "
        "(avx512_bf16), where training takes less time. The last bits of sums then "
        "depend on the processor: on another one a private run does not go on.",
    )
    precision: str = option(
        "float32",
        "Numbers of the products with the CIFG-LSTM's output embedding, in training. "
        "bfloat16 rounds factors and results to 8 bits; only with --onednn, on a "
        "processor with AMX, is it meant to take less time.",
        choices=("float32", "bfloat16"),
    )
    num_units: int = option(
        670,
        "Memory cells of the CIFG-LSTM.",
        least=1,
        most=_LARGEST_LAYER,
    )
    embedding_size: int = option(
        96,
        "Size of the input embeddings, the output embeddings and the projection; at "
        "most 2^16.",
        least=1,
        most=_LARGEST_LAYER,
    )
    tied_embeddings: bool = option(
        False,
        "Use the CIFG-LSTM's input embedding as its output embedding, too: fewer "
        "parameters, whose update has one norm and one noise.",
    )
    initial_model: str | None = option(
        None,
        "Begin with the model of an earlier run of the same vocabulary and sizes: its "
        "directory 'model', or the run's directory for its last checkpoint (the "
        "average, where it has one). The guarantee takes it for public.",
    )
    initial_bias: str = option(
        "zero",
        "Output bias to begin with. public: the log of public word frequencies; with "
        "the default vocabulary only.",
        choices=("zero", "public"),
    )
    max_sentences: int = option(
        256,
        "The first sentences of a client that are used.",
        least=1,
        most=LARGEST_COUNT,
    )
    max_words: int = option(
        20,
        "The first words of a sentence that are used.",
        least=1,
        most=1000,
        why="the model is built with a step for each",
    )
    batch_size: int = option(
        16,
        "Sentences of a client's batch.",
        least=1,
        most=LARGEST_COUNT,
    )
    num_held_out_clients: int = option(
        100,
        "Clients that train nothing and evaluate the model.",
        least=1,
        most=LARGEST_COUNT,
    )

    def read_vocabulary(
        self, population: PopulationOptions
    ) -> "tuple[Vocabulary, str]":
        """Returns the vocabulary, and its public data.

        Args:
            population: The language, and the columns of text files.

        Raises:
            ValueError: If the file is not a vocabulary, or the initial model has
                another one.
        """
        from training.models import model_vocabularies

        if self.vocabulary is None and population.case == "keep":
            raise ValueError(
                "--case=keep: the built-in vocabularies have no capitals, so each "
                "capitalised word would be unknown; give --vocabulary=text:FILE, which "
                "counts one on public text, or a file of words"
            )
        words, public_data = model_vocabularies.read(
            self.vocabulary, self.vocabulary_size, population
        )
        if self.initial_model is not None:
            model_vocabularies.check_files(self.initial_model, words)
        return words, public_data

    def custom_network(self, num_tokens: int, seed: int) -> "LanguageModel | None":
        """Returns a custom model; None for the default one.

        Args:
            num_tokens: Size of the vocabulary with its special tokens.
            seed: The seed of its first weights.

        Raises:
            ValueError: See `custom_model.language_model`.
        """
        if self.model is None:
            return None
        from training.models import custom_model  # imports TensorFlow

        return custom_model.language_model(
            self.model, num_tokens, self.max_words + 1, seed
        )

    def _check_beginning(self) -> None:
        for name in ("tied_embeddings", "precision"):
            is_given = getattr(self, name) not in (False, "float32")
            if is_given and self.model is not None:
                raise OptionError(
                    self,
                    f"{{{name}=}} cannot be combined with {{model}}: it is of the "
                    "default model. Leave one of them out",
                )
        if self.initial_bias != "public":
            return
        for name in ("vocabulary", "initial_model", "model"):
            if getattr(self, name) is not None:
                raise OptionError(
                    self,
                    f"{{initial_bias=}} cannot be combined with {{{name}}}: it sets "
                    "the default model's output bias to the default vocabulary's "
                    "known frequencies. Leave one of them out",
                )
