"""Sentences of few tokens, whose n-grams are counted by hand or by the definition."""

import numpy as np

from training.text import windows

NUM_TOKENS = 9
PAD, OOV, BOS, EOS = range(4)


def places_of(sentences, num_tokens=NUM_TOKENS):
    """Returns the places of whole sentences of token ids."""
    rows = []
    for sentence in sentences:
        padded = [PAD, BOS, *sentence, EOS]
        rows += [padded[i : i + 3] for i in range(len(sentence) + 1)]
    return windows.Windows(np.array(rows, np.int32).reshape(-1, 3), num_tokens)


def random_sentences(seed, number):
    """Returns sentences in which a token says something of the next two."""
    random = np.random.default_rng(seed)
    table = random.dirichlet(np.full(5, 0.3), (NUM_TOKENS, NUM_TOKENS))
    sentences = []
    for _ in range(number):
        before, last, sentence = PAD, BOS, []
        for _ in range(random.integers(1, 9)):
            token = 4 + random.choice(5, p=table[before, last])
            token = OOV if token == 8 and random.random() < 0.5 else token
            sentence.append(token)
            before, last = last, token
        sentences.append(sentence)
    return sentences
