"""The unknown words of Zhu et al. 2020 at the frequencies that the paper prints.

Appendix D.2 has the 100 most frequent ones of its OOV data set. Where the data are only
a part of Sentiment140, or another dictionary says what is unknown, these are nearer to
the paper's population than what is counted: Table 2 depends on how many of the top 50
are longer than nine characters, and on how frequent the others are.
"""

import os
import pathlib

import numpy as np

from federated_hh.files import atomic_files
from federated_hh.populations.columns import client_words

# In millionths. The printed list has two words twice, at two frequencies each: the
# second ones, spelled here as users do, have lost a letter.
_PRINTED = """
dont 11741, thats 6008, didnt 4292, sooo 4023, awww 3468, @mileycyrus 2931,
@tommcfly 2556, soooo 2473, @ddlovato 2254, doesnt 1800, #followfriday 1694,
havent 1559, @jonasbrothers 1553, isnt 1336, #fb 1168, sooooo 1041, awwww 1037,
tweetdeck 958, couldnt 939, :( 931, wasnt 913, (via 896, @davidarchie 892,
@donniewahlberg 865, @jonathanrknight 825, *sigh* 811, @jordanknight 749, ooh 730,
@mitchelmusso 708, (and 705, ohhh 693, ahhhh 664, *hugs* 647, nooo 634, #ff 628,
#squarespace 612, youre 609, p.s 594, noooo 588, b/c 581, ughh 575, goodmorning 555,
mmm 553, re 552, twitpic 540, soooooo 529, @doughiemcfly 525, @selenagomez 524,
bgt 514, realised 508, 'em 503, thankyou 487, ya'll 477, xxxx 471, booo 464, youu 458,
@dannymcfly 455, wouldnt 447, atleast 434, hey 432, 'cause 432, ughhh 430, photo 427,
r.i.p 421, wooo 415, @peterfacinelli 415, @aplusk 409, tooo 408, tomorrow 405,
hayfever 405, a.m 401, @joeymcintyre 399, goood 389, urgh 376, @youngq 369, w/o 368,
awsome 360, (or 355, aswell 354, skool 354, tweetie 353, tomorow 346, boooo 336,
@shaundiviney 335, #iranelection 335, :-d 330, awwwww 330, #seb-day 329, nooooo 327,
yeahh 326, @perezhilton 322, @tomfelton 316, g'night 313, twitterverse 311, (y) 304,
grrrr 299, @officialtila 296, realise 289, (not 286, @kirstiealley 285
"""
# Of the counts that stand for frequencies.
_TOTAL = 10**9


def frequencies() -> dict[str, float]:
    """Returns the printed words with their frequencies, the most frequent first."""
    entries = (entry.split() for entry in _PRINTED.replace("\n", " ").split(","))
    return {word: int(millionths) / 1e6 for word, millionths in entries}


def counts_with_tail(population: client_words.ClientWords) -> dict[str, int]:
    """Returns the printed words, and rarer ones of a population, with counts.

    The population's other words from rank 101 on share what the printed words leave,
    in proportion to their counts, each at most as frequent as the last printed one.

    Args:
        population: The population of unknown words.

    Returns:
        Counts of some 10^9 occurrences.
    """
    printed = frequencies()
    totals = population.occurrences().astype(float)
    words = population.words.to_pylist()
    order = [i for i in np.argsort(-totals, kind="stable") if words[i] not in printed]
    tail = order[len(printed) :]
    rest, most = 1 - sum(printed.values()), min(printed.values())
    shares = totals[tail] * rest / totals[tail].sum()
    for _ in range(100):  # what is cut off goes to those that are below the limit
        shares = np.minimum(shares, most)
        free = shares < most
        missing = rest - shares.sum()
        if missing <= 1e-12 or not free.any():
            break
        shares[free] *= 1 + missing / shares[free].sum()
    found = {word: round(share * _TOTAL) for word, share in printed.items()}
    for i, share in zip(tail, shares, strict=True):
        found[words[i]] = round(share * _TOTAL)
    return {word: count for word, count in found.items() if count}


def counts_file(
    population: client_words.ClientWords, cache: str | os.PathLike[str]
) -> str:
    """Returns the path of `counts_with_tail` as a word count file of one user.

    Args:
        population: See `counts_with_tail`.
        cache: Directory of the file.
    """
    path = pathlib.Path(cache) / f"printed_oov_{population.fingerprint[:16]}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.locked(path, "writing counts of words"):
        if not path.exists():
            rows = counts_with_tail(population).items()
            text = "".join(f"all\t{word}\t{count}\n" for word, count in rows)
            atomic_files.write_file(path, text.encode())
    return str(path)
