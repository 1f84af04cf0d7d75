"""Runs a study of a paper, and writes its tables and plots.

scripts/run scripts.reproduce --study=oov_table1 --scale=0.05

Writes CSV, PNG and a Markdown table to --results_dir. A study that was interrupted goes
on with --resume and --output_dir.
"""

import os
import pathlib
import string

from absl import app, flags, logging

from simulation import experiment_flags, population_options, prepared_data

_PROGRAM = "scripts.reproduce"

_STUDIES = [
    "oov_table1",
    "oov_figure1",
    "oov_production",
    "oov_real_text",
    "training_blogs",
]
# They need --data_dir.
_ON_REAL_TEXT = ("oov_real_text", "training_blogs")

_STUDY = flags.DEFINE_enum(
    "study", None, _STUDIES, "What to run; a run that is continued knows it."
)
_RESULTS_DIR = flags.DEFINE_string(
    "results_dir",
    None,
    "Where tables and plots go; results/STUDY in the working directory by default.",
)
_CACHE = flags.DEFINE_string(
    "population_cache",
    None,
    "Directory where prepared populations are kept. A full-scale one takes 24 GB.",
)
_SCALE = flags.DEFINE_float(
    "scale",
    0.05,
    "Part of the paper's clients, above 0 and at most 1: 1 is 15 million of them.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_NUM_REPEATS = flags.DEFINE_integer(
    "num_repeats",
    3,
    "Runs of each setting, for the intervals; each takes minutes.",
    lower_bound=1,
    upper_bound=1000,
)
_MEAN_WORDS = flags.DEFINE_float(
    "mean_words_per_client",
    3600.0,
    "Mean number of words that a client types in the paper's T = 60 days; with "
    "--target_share=0.05, one in twenty is a target word.",
    lower_bound=2.0,
    upper_bound=float(population_options.MAX_MEAN_WORDS),
)
_SIGMA = flags.DEFINE_float(
    "words_per_client_sigma",
    0.7,
    "Standard deviation of the logarithm of that number: how heavy its tail is.",
    lower_bound=0.0,
    upper_bound=population_options.MAX_SIGMA,
)
_TRENDING_SHARE = flags.DEFINE_float(
    "trending_share",
    0.75,
    "Share of the target words typed that are words in fashion; the others are typed "
    "at the frequencies of English. Below 1.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_TRENDING_WORDS = flags.DEFINE_integer(
    "trending_words",
    70,
    "How many target words are in fashion; there are 321,180 words.",
    lower_bound=1,
    upper_bound=321_180,
)
_TRENDING_EXPONENT = flags.DEFINE_float(
    "trending_exponent",
    0.3,
    "The k-th word in fashion is typed k**-exponent times as often as the first.",
    lower_bound=0.0,
    upper_bound=population_options.MAX_TRENDING_EXPONENT,
)
_TARGET_SHARE = flags.DEFINE_float(
    "target_share",
    0.05,
    "Share of the frequency mass of English that the target words make up.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_VOCABULARY_SIZE = flags.DEFINE_integer(
    "vocabulary_size",
    None,
    "The target words are among so many most frequent English words; by default "
    "among all 321,180 of the word list.",
    lower_bound=1,
    upper_bound=321_180,
)
_MAX_DEPTH = flags.DEFINE_integer(
    "max_depth", 15, "Levels of a pass (D).", lower_bound=1, upper_bound=100
)
_MAX_PREFIXES = flags.DEFINE_integer(
    "max_prefixes",
    10_000,
    "Prefixes that a level keeps (eta_max); the next level's candidates are 101 times "
    "as many, and each takes 100 bytes.",
    lower_bound=1,
    upper_bound=1_000_000,
)
_CONTRIBUTION_BOUND = flags.DEFINE_integer(
    "contribution_bound",
    60,
    "Reports of a client (B); more than clients have items are padding.",
    lower_bound=1,
    upper_bound=100_000,
)
_POPULATION_SEED = flags.DEFINE_integer(
    "population_seed",
    0,
    "Seed of the population.",
    lower_bound=0,
    upper_bound=2**63 - 1,
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Studies oov_real_text and training_blogs: the directory that holds the data sets "
    "blog-authorship, sentiment140-partial, ubuntu-irc and word-lists; training_blogs "
    "needs the first only.",
)
flags.adopt_module_key_flags(experiment_flags)


# What only the studies of synthetic populations use.
_OF_SYNTHETIC_STUDIES = (
    "scale",
    "mean_words_per_client",
    "words_per_client_sigma",
    "trending_share",
    "trending_words",
    "trending_exponent",
    "target_share",
    "vocabulary_size",
    "max_prefixes",
    "contribution_bound",
    "population_seed",
)
# Of the central guarantees of some ten thousand clients.
_DELTA_OF_REAL_TEXT = 1e-6


def _cache() -> str | os.PathLike[str]:
    return _CACHE.value or prepared_data.DEFAULT_CACHE


def _check_flags() -> None:
    if _STUDY.value is None:
        raise ValueError(f"--study is needed: one of {', '.join(_STUDIES)}")
    if not 0 < _SCALE.value <= 1:
        raise ValueError(f"--scale={_SCALE.value}: has to be above 0 and at most 1")
    if _TRENDING_SHARE.value == 1:
        raise ValueError("--trending_share=1: has to be below 1")
    if not 0 < _TARGET_SHARE.value < 1:
        raise ValueError(f"--target_share={_TARGET_SHARE.value}: has to be in (0, 1)")
    # A run that is continued has all flags in its flagfile.
    if _STUDY.value in _ON_REAL_TEXT and not flags.FLAGS.resume:
        for name in _OF_SYNTHETIC_STUDIES:
            if flags.FLAGS[name].present:
                raise ValueError(
                    f"--{name}: study {_STUDY.value} does not use it; leave it out"
                )
    if _STUDY.value in _ON_REAL_TEXT and not os.path.isdir(_DATA_DIR.value or ""):
        raise ValueError(
            f"--data_dir={_DATA_DIR.value}: {_STUDY.value} needs the directory of the "
            "real data sets"
        )


def _prepare_population(num_clients: int):
    """Returns the synthetic population that types the target words."""
    from federated_hh import oov_targets
    from simulation import population

    cache = _cache()
    known = oov_targets.known_words_file(
        cache, _TARGET_SHARE.value, _VOCABULARY_SIZE.value
    )
    options = population_options.PopulationOptions(
        tokenizer="whitespace",
        known_words=known,
        num_clients=num_clients,
        mean_words_per_client=_MEAN_WORDS.value,
        words_per_client_sigma=_SIGMA.value,
        trending_share=_TRENDING_SHARE.value,
        trending_words=_TRENDING_WORDS.value,
        trending_exponent=_TRENDING_EXPONENT.value,
        seed=_POPULATION_SEED.value,
    )
    return population.prepare(options, cache)


def _population_note(population, scale: float) -> str:
    entries = population.num_entries / population.num_clients
    return (
        f"Population: {population.num_clients:,} synthetic clients with "
        f"{population.num_words:,} distinct target words, {entries:.1f} of them a "
        f"client on average (fingerprint {population.fingerprint[:16]}); scale "
        f"{scale:g}."
    )


# What keeps the numbers of a synthetic population from being Gboard's.
_DIFFERENCES = (
    "Where this differs from the paper's population: all clients draw words "
    "independently from one distribution, which mixes some words in fashion with the "
    "tail of a list of 321,180 English words. How often Gboard's users repeat a word, "
    "and how many share it, is not published. Fashion is what separates the samplers "
    "here: the greedy one spends a device's reports on it, and the tail goes short."
)


def _notes(directory, arguments: experiment_flags.Arguments) -> list[str]:
    hidden = ["results_dir", "data_dir"]
    if _STUDY.value in _ON_REAL_TEXT:
        hidden += _OF_SYNTHETIC_STUDIES
    given = [
        flag
        for flag in arguments.flags
        if flag.removeprefix("--").split("=")[0] not in hidden
    ]
    if _STUDY.value in _ON_REAL_TEXT:
        given.append("--data_dir=...")
    return [
        "Intervals are over repeats, each with cohorts, local samples and noise of its "
        "own, on one population. Settings have noise of their own, and the cohorts in "
        "common with settings of as many clients a level.",
        f"Code {directory.run['version']}; `scripts/run {_PROGRAM} {' '.join(given)}`",
    ]


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the study that the flags ask for."""
    if _STUDY.value == "oov_real_text":
        _run_real_text(arguments)
    elif _STUDY.value == "training_blogs":
        _run_training_blogs(arguments)
    else:
        _run_synthetic(arguments)


def _run_synthetic(arguments: experiment_flags.Arguments) -> None:
    # TensorFlow comes with these: it takes seconds to import.
    from federated_hh import alphabet as alphabet_lib
    from federated_hh import oov_report, oov_studies
    from simulation import run_directory

    study = oov_studies.STUDIES[_STUDY.value]
    options = oov_studies.Options(
        scale=_SCALE.value,
        num_repeats=_NUM_REPEATS.value,
        seed=arguments.seed,
        max_depth=_MAX_DEPTH.value,
        max_prefixes=_MAX_PREFIXES.value,
        contribution_bound=_CONTRIBUTION_BOUND.value,
        characters=string.printable,
    )
    options.check(study, options.num_clients)
    population = _prepare_population(options.num_clients)
    facts = {"population": population.fingerprint}
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        runner = oov_studies.StudyRunner(study, options, population, directory)
        for results in runner.run():
            summary = oov_report.summarize(results.runs)
            notes = [_population_note(population, options.scale), _DIFFERENCES]
            notes += _notes(directory, arguments)
            files = oov_report.files_of(study.title, results, summary, notes)
            if _STUDY.value == "oov_production":
                files |= oov_report.privacy_files(
                    options.parameters(study.settings[0]),
                    alphabet_lib.Alphabet(options.characters),
                    results.levels,
                )
            _write_results(directory, files)
        directory.complete()


def _run_real_text(arguments: experiment_flags.Arguments) -> None:
    from federated_hh import oov_real_text, oov_report
    from simulation import run_directory, tables

    clients = oov_real_text.populations(_DATA_DIR.value, _cache())
    facts = {name: held.fingerprint for name, held in clients.items()}
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        results, words = oov_real_text.RealTextRunner(
            clients,
            directory,
            _NUM_REPEATS.value,
            arguments.seed,
            _MAX_DEPTH.value,
        ).run()
        guaranteed = oov_real_text.statements(
            clients, results.levels, _MAX_DEPTH.value, _DELTA_OF_REAL_TEXT
        )
        summary = oov_report.summarize(results.runs)
        title = "Words that a large dictionary does not know, in real text"
        notes = oov_real_text.notes(clients, guaranteed) + _notes(directory, arguments)
        files = oov_report.files_of(title, results, summary, notes)
        for name, statement in guaranteed.items():
            files[f"privacy_{name}.md"] = statement.to_markdown().encode()
        files["words.csv"] = tables.write(words).encode()
        files["table.md"] += oov_real_text.words_to_markdown(words, 60).encode()
        _write_results(directory, files)
        directory.complete()


def _run_training_blogs(arguments: experiment_flags.Arguments) -> None:
    from simulation import run_directory
    from training import learning_study

    cache = _cache()
    posts = learning_study.blogs_file(_DATA_DIR.value, cache)
    with run_directory.open_for(arguments, program=_PROGRAM, facts={}) as directory:
        runs = learning_study.run_all(
            posts, directory.path, cache, [f"--seed={arguments.seed}"]
        )
        notes = [
            *learning_study.describe(directory.path),
            f"Code {directory.run['version']}; `scripts/run {_PROGRAM} "
            f"--study={_STUDY.value} --data_dir=... --seed={arguments.seed}`",
        ]
        _write_results(directory, learning_study.files_of(runs, notes))
        directory.complete()


def _write_results(directory, files: dict[str, bytes]) -> None:
    results = pathlib.Path(_RESULTS_DIR.value or f"results/{_STUDY.value}")
    results.mkdir(parents=True, exist_ok=True)
    for name, contents in files.items():
        directory.simulator.write_bytes(name, contents)
        (results / name).write_bytes(contents)
    logging.info("Results: %s", results)
    print(files["table.md"].decode())


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv,
        _PROGRAM,
        _check_flags,
        run,
        is_synthetic=lambda: _STUDY.value not in _ON_REAL_TEXT,
    )


if __name__ == "__main__":
    app.run(main, flags_parser=experiment_flags.parse_flags)
