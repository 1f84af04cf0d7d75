"""Word lists of languages cut short, where a test has no need of their tails."""

import functools
import itertools
from unittest import mock

from absl.testing import absltest

from federated_hh.populations.languages import languages


def _first_words(frequencies, size, code):
    return dict(itertools.islice(frequencies(code).items(), size))


def use(test: absltest.TestCase, size: int) -> None:
    """Has each list end after its most frequent words, until the test ends.

    Args:
        test: The test; programs that it starts have the whole lists.
        size: Number of words kept.
    """
    first = functools.partial(_first_words, languages.frequencies, size)
    test.enter_context(mock.patch.object(languages, "frequencies", first))
    for cached in (languages.words, languages.letters):
        cached.cache_clear()
        test.addCleanup(cached.cache_clear)
