"""Damage of JSON files: a hostile value in place of each node of each file.

A generator for tests here, and for harnesses of many trials: `of_file` and `of_folder`
yield (file, pointer, contents); the caller writes the contents and runs the reader.
"""

import json
import os
import pathlib
import random

DEEP = "[" * 100_000 + "]" * 100_000
# Replacements of a node, as JSON text.
VALUES = ("null", "[]", "{}", "1", "-1", '"x"', DEEP, '"\\ud800"')
_MARK = "the place of the value"


def pointers(value, pointer=()):
    """Yields the keys that lead to each node of a JSON value, the whole first."""
    yield pointer
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from pointers(item, (*pointer, key))


def replaced(value, pointer, text):
    """Returns JSON text of a value with a text in place of a node."""
    if not pointer:
        return text
    copy = json.loads(json.dumps(value))
    holder = copy
    for key in pointer[:-1]:
        holder = holder[key]
    holder[pointer[-1]] = _MARK
    return json.dumps(copy).replace(json.dumps(_MARK), text)


def of_file(path):
    """Yields damages of a file: JSON, or a line of JSON each."""
    path = pathlib.Path(path)
    text = path.read_text()
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    for number, line in enumerate(lines):
        value = json.loads(line)
        for pointer in pointers(value):
            for given in VALUES:
                damaged = [*lines]
                damaged[number] = replaced(value, pointer, given)
                place = (number, *pointer) if path.suffix == ".jsonl" else pointer
                yield path, place, given, "\n".join(damaged) + "\n"


def of_folder(folder, sample=None, seed=1):
    """Returns damages of all JSON files below a folder.

    Args:
        folder: The folder of a run, a cache, or recipes.
        sample: The most damages of each file; None for all.
        seed: Seed of the sample.
    """
    found = []
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith((".json", ".jsonl")):
                damages = list(of_file(pathlib.Path(place) / name))
                if sample is not None and len(damages) > sample:
                    damages = random.Random(f"{seed}{name}").sample(damages, sample)
                found += damages
    return found
