"""Tests of the best possible metrics against enumeration, and against drawn text."""

import collections
import math
import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import synthetic_sentences
from training.baselines import best_possible, language_law
from training.text import examples
from training.text import windows as windows_lib

_OOV, _EOS = vocabulary_lib.OOV, vocabulary_lib.EOS


def tiny_language(context_words):
    options = population_options.LanguageOptions(
        mean_sentence_words=2.5,
        context_strength=0.8,
        num_followers=2,
        context_words=context_words,
    )
    words = ["a", "b", "c", "d", "e"]
    frequencies = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    return synthetic_sentences.SyntheticLanguage(words, frequencies, options, seed=2)


def next_word_law(language, word):
    law = language.frequencies.copy()
    if word is not None and word < language.options.context_words:
        strength = language.options.context_strength
        law *= 1 - strength
        for follower, weight in zip(
            language.followers[word], language.follower_weights, strict=True
        ):
            law[follower] += strength * weight
    return law


def enumerate_targets(language, tokens, max_words):
    """Returns the probability of each (what a model sees of the past, next token)."""
    joint = collections.defaultdict(lambda: collections.defaultdict(float))
    end = language.end_probability

    def go_on(probability, past, word):
        place = len(past)
        stops = end if place else 0.0
        if place == max_words:
            # A longer sentence has no target here.
            joint[past][_EOS] += probability * stops
            return
        if stops:
            joint[past][_EOS] += probability * stops
        law = next_word_law(language, word)
        for follower, share in enumerate(law):
            mass = probability * (1 - stops) * share
            joint[past][tokens[follower]] += mass
            go_on(mass, (*past, tokens[follower]), follower)

    go_on(1.0, (), None)
    return joint


class BestPossibleTest(parameterized.TestCase):
    @parameterized.parameters(
        # All words are known; the rare ones are not; one with followers is not.
        (5, 3, ["a", "b", "c", "d", "e"], True),
        (2, 4, ["b", "a", "c"], True),
        (3, 4, ["a", "b", "d"], False),
    )
    def test_enumerated(self, context_words, max_words, known, is_reached):
        language = tiny_language(context_words)
        vocabulary = vocabulary_lib.Vocabulary(known)
        tokens = vocabulary.encode(language.words)
        found = best_possible.best_possible(language, vocabulary, max_words)
        joint = enumerate_targets(language, tokens, max_words)
        loss = places = words = best = best3 = 0.0
        for law in joint.values():
            mass = sum(law.values())
            places += mass
            loss -= sum(p * math.log(p / mass) for p in law.values() if p)
            of_words = sorted((p for t, p in law.items() if t > _EOS), reverse=True)
            words += sum(of_words)
            best += sum(of_words[:1])
            best3 += sum(of_words[:3])
        expected = {
            "loss": loss / places,
            "top1_in_vocabulary": best / words,
            "one_suggestion": best / words,
            "three_suggestions": best3 / words,
        }
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            if is_reached:
                self.assertAlmostEqual(found[name], value, places=12)
            elif name == "loss":
                self.assertBetween(found[name], value - 0.2, value - 1e-3)
            else:
                self.assertGreaterEqual(found[name], value - 1e-12)

    @parameterized.parameters(
        # All words are known; the rare ones are not.
        (5, ["a", "b", "c", "d", "e"]),
        (2, ["b", "a", "c"]),
        (1, ["a", "c"]),
    )
    def test_at_places(self, context_words, known):
        language = tiny_language(context_words)
        vocabulary = vocabulary_lib.Vocabulary(known)
        tokens = vocabulary.encode(language.words)
        law = language_law.LanguageLaw.of(language, vocabulary)
        joint = enumerate_targets(language, tokens, max_words=3)
        rows, expected = [], collections.Counter()
        for past, after in joint.items():
            before = [vocabulary_lib.PAD, vocabulary_lib.BOS, *past]
            total = sum(after.values())
            words = [t for t in sorted(after, key=lambda t: -after[t]) if t > _EOS]
            for target, mass in after.items():
                # Each is asked about after a sentence that leads to it.
                lead = [before[i : i + 3] for i in range(len(past))]
                rows.append([*lead, [*before[-2:], target]])
                expected["loss"] -= math.log(mass / total)
                expected["places"] += 1
                expected["words"] += target > _EOS
                expected["one"] += target in words[:1]
                expected["three"] += target in words[:3]
                for place in range(len(past)):
                    leading = joint[past[:place]]
                    likely = sorted(leading, key=lambda t: -leading[t])
                    likely = [t for t in likely if t > _EOS]
                    share = leading[past[place]] / sum(leading.values())
                    expected["loss"] -= math.log(share)
                    expected["places"] += 1
                    expected["words"] += past[place] > _EOS
                    expected["one"] += past[place] in likely[:1]
                    expected["three"] += past[place] in likely[:3]
        places = windows_lib.Windows(np.concatenate(rows), vocabulary.num_tokens)
        found = best_possible.at_places(law, places, max_words=3)
        words = expected["words"]
        self.assertAlmostEqual(found["loss"], expected["loss"] / expected["places"])
        for name, hits in (
            ("top1_in_vocabulary", "one"),
            ("one_suggestion", "one"),
            ("three_suggestions", "three"),
        ):
            self.assertAlmostEqual(found[name], expected[hits] / words, msg=name)

    def test_nothing_is_asked(self):
        nothing = np.zeros(0, np.int64)
        known = vocabulary_lib.Vocabulary(["a", "b", "c"])
        law = language_law.LanguageLaw.of(tiny_language(3), known)
        self.assertEqual(law.probability(nothing, nothing).tolist(), [])
        self.assertEqual(law.best(nothing).shape, (0, 4))

    def test_words_without_a_token_that_have_followers_leave_no_law_of_tokens(self):
        vocabulary = vocabulary_lib.Vocabulary(["a", "b", "d"])
        self.assertIsNone(language_law.LanguageLaw.of(tiny_language(3), vocabulary))

    def test_drawn_english(self):
        # The law's own loss on 40,000 sentences, whose mean has to be within six
        # standard errors: false alarms 2e-9.
        options = population_options.LanguageOptions(context_words=300)
        language = synthetic_sentences.SyntheticLanguage.of_words(
            options, 3, sentence_tokenizers.get_sentence_tokenizer("keyboard")
        )
        vocabulary = vocabulary_lib.Vocabulary.of_language(500)
        tokens = np.array(vocabulary.encode(language.words))
        found = best_possible.best_possible(language, vocabulary, max_words=6)
        random = np.random.default_rng(7)
        lengths = language.draw_lengths(random, 40_000)
        words = np.split(
            language.draw_sentences(random, lengths), np.cumsum(lengths)[:-1]
        )
        laws = {}
        losses, places = [], []
        for sentence in words:
            log, before = 0.0, None
            for word in sentence[:6]:
                if before is not None:
                    log += math.log(1 - language.end_probability)
                key = before if before is None or before < 300 else None
                if key not in laws:
                    laws[key] = np.bincount(tokens, next_word_law(language, key))
                log += math.log(laws[key][tokens[word]])
                before = word
            if len(sentence) < 6:
                log += math.log(language.end_probability)
            losses.append(-log)
            places.append(min(len(sentence), 6) + (len(sentence) <= 6))
        losses, places = np.array(losses), np.array(places)
        ratio = losses.sum() / places.sum()
        error = np.std(losses - ratio * places) / math.sqrt(len(places))
        error /= places.mean()
        self.assertLess(error, 0.01)
        self.assertLess(abs(found["loss"] - ratio), 6 * error)

    def test_the_places_are_those_of_training(self):
        directory = pathlib.Path(self.create_tempdir().full_path) / "text"
        rows = [(str(n), [[4] * n]) for n in range(1, 5)]
        text = client_text.ClientText.from_rows(directory, rows)
        limits = examples.ClientLimits(max_words=2)
        used = [
            len(windows_lib.of_clients(text, np.array([i]), limits, 5).targets)
            for i in range(4)
        ]
        self.assertEqual(used, [2, 3, 2, 2])  # sentences of three words or more: cut
        language = tiny_language(2)
        end = language.end_probability
        expected = 2 * end + 3 * (1 - end) * end + 2 * (1 - end) ** 2
        joint = enumerate_targets(language, [4, 5, 6, 7, 8], 2)
        places = sum(sum(law.values()) for law in joint.values())
        self.assertAlmostEqual(places, expected, places=12)

    def test_bad_limit(self):
        vocabulary = vocabulary_lib.Vocabulary(["a"])
        with self.assertRaisesRegex(ValueError, "max_words is 0"):
            best_possible.best_possible(tiny_language(2), vocabulary, 0)


if __name__ == "__main__":
    absltest.main()
