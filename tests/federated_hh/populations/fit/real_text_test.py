"""Tests the fit on real text, against counts by pandas and SciPy's own maximum."""

import json
import lzma
import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest
from scipy import optimize, special

from federated_hh.populations import population, population_numbers
from federated_hh.populations.fit import fitted_law
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import word_table
from tests import ROOT

_SHARED = ROOT.parent / "shared" / "data"
_POSTS = [
    _SHARED / f"blog-authorship/posts-0{shard}-of-16.jsonl.xz" for shard in (0, 1)
]
_DICTIONARY = _SHARED / "word-lists/american-english-huge.txt.xz"
_USERS_PER_SHARD = 120
_MARKS = "urlLink|&[a-z]+;?|nbsp"
_NOT_TYPED = r"(?<![^\W_])(?:https?:|www\.|@|[a-z]+://)\S*|[^\s@]+@[^\s@.]+\.\S*"
_WORD = r"[^\W_]+(?:(?:['-]|(?<=\d)[.,](?=\d))[^\W_]+)*"
_LETTERS = "abcdefghijklmnopqrstuvwxyz'"


def some_posts(path):
    """Returns the posts of the first bloggers of a shard."""
    posts, users = [], set()
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            post = json.loads(line)
            users.add(post["user"])
            if len(users) > _USERS_PER_SHARD:
                break
            posts.append(post)
    return posts


def pairs_by_pandas(posts):
    """Returns how often each user has each unknown word: user, word and count."""
    frame = pd.DataFrame(posts)
    text = frame["text"].str.replace(_MARKS, " ", regex=True).str.lower()
    text = text.str.replace("[\u2018\u2019]", "'", regex=True)
    text = text.str.replace(_NOT_TYPED, " ", regex=True)
    words = frame.assign(word=text.str.findall(_WORD))[["user", "word"]].explode("word")
    words = words.dropna()
    kept = words["word"].str.fullmatch(f"[{_LETTERS}]+")
    known = word_table.read_dictionary(str(_DICTIONARY))
    words = words[kept & ~words["word"].isin(known)]
    return words.groupby(["user", "word"]).size().rename("count").reset_index()


def most_likely(partitions):
    """Returns the most likely discount and concentration: Pitman 2006, (3.6)."""

    def loss(point):
        d, a = special.expit(point[0]), np.exp(point[1])
        total = 0.0
        for sizes in partitions:
            openings = np.log(a + d * np.arange(1, len(sizes))).sum()
            seats = special.gammaln(a + sizes.sum()) - special.gammaln(a + 1)
            joins = special.gammaln(sizes - d) - special.gammaln(1 - d)
            total += openings - seats + joins.sum()
        return -total

    best = optimize.minimize(
        loss, [0.0, 3.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8}
    )
    return special.expit(best.x[0]), np.exp(best.x[1])


def partitions_of(rows):
    return np.split(np.asarray(rows.counts, np.float64), rows.row_splits[1:-1])


class FitRealTextTest(absltest.TestCase):
    def test_bloggers(self):
        if not all(path.exists() for path in [*_POSTS, _DICTIONARY]):
            self.skipTest(f"there is no real text in {_SHARED}")
        directory = pathlib.Path(self.create_tempdir().full_path)
        posts = []
        for number, path in enumerate(_POSTS):
            found = some_posts(path)
            text = "".join(json.dumps(post) + "\n" for post in found)
            (directory / f"{number}.jsonl").write_text(text)
            posts += found
        clients = population.prepare(
            population_options.PopulationOptions(
                source=f"{directory}/*.jsonl",
                alphabet=_LETTERS,
                known_words=str(_DICTIONARY),
                drop_pattern=_MARKS,
            ),
            directory / "cache",
        )
        pairs = pairs_by_pandas(posts)
        by_user = pairs.groupby("user")["count"]

        with self.subTest("the words of each user"):
            expected = {
                user: dict(zip(group["word"], group["count"], strict=True))
                for user, group in pairs.groupby("user")
            }
            read = {
                clients.client_id(i): dict(clients.client(i))
                for i in range(clients.num_clients)
            }
            self.assertEqual(read, {str(user): row for user, row in expected.items()})

        rows = population_numbers.Rows(
            np.array(clients.word_ids),
            np.array(clients.counts),
            np.array(clients.row_splits),
        )
        with self.subTest("numbers"):
            numbers = population_numbers.Numbers(rows).values()
            totals = pairs.groupby("word")["count"].sum().sort_values(ascending=False)
            typed = by_user.sum()
            for name, value in {
                "words of a client, mean": typed.mean(),
                "words of a client, median": typed.median(),
                "words of a client, sd of the logarithm": np.log(typed).std(ddof=0),
                "distinct words of a client, mean": by_user.size().mean(),
                "distinct words of a client, median": by_user.size().median(),
                "share of the 70 most frequent words": totals[:70].sum() / totals.sum(),
                "times that a holder has a word": pairs["count"].mean(),
            }.items():
                self.assertAlmostEqual(numbers[name] / value, 1, places=9, msg=name)

        fit = fitted_law.fit(rows, np.random.default_rng(1), 2, own_lengths=True)
        with self.subTest("a user's own law"):
            d, a = most_likely([group.to_numpy(float) for _, group in by_user])
            self.assertAlmostEqual(fit.own.discount, d, delta=1e-4)
            self.assertAlmostEqual(fit.own.concentration / a, 1, delta=1e-3)
        with self.subTest("how users share words"):
            d, a = most_likely([pairs.groupby("word").size().to_numpy(float)])
            self.assertAlmostEqual(fit.common.discount, d, delta=1e-4)
            self.assertAlmostEqual(fit.common.concentration / a, 1, delta=1e-3)
        with self.subTest("what the law draws looks like the data"):
            d, a = most_likely(partitions_of(fit.simulated[0]))
            errors = fit.own.errors
            self.assertLess(abs(d - fit.own.discount) / errors[0], 5.4)
            self.assertLess(abs(a - fit.own.concentration) / errors[1], 5.4)


if __name__ == "__main__":
    absltest.main()
