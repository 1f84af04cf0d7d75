"""The case study of Sun et al. 2024, Section 4, on populations of our own."""

import os
import string
from typing import TYPE_CHECKING

from studies.sun_2024.case_options import SETTINGS, Options

if TYPE_CHECKING:  # TensorFlow comes with it: it takes seconds to import
    from studies.sun_2024 import coverage_study

INTERVALS = (
    "Intervals are over repeats with separate cohorts, local samples and noise, on one "
    "population. Settings have separate noise; those of equal cohort size share their "
    "cohorts."
)


TITLES = {
    "oov_table1": "Table 1 of Sun et al. 2024: sampler and passes",
    "oov_figure1": "Figure 1 of Sun et al. 2024: coverage and local epsilon",
    "oov_production": "The production setting of Sun et al. 2024, Section 4.1",
}


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> "coverage_study.CoverageStudy":
    """Returns the study; see `studies`.

    Raises:
        ValueError: If a setting cannot be run; before a population is prepared.
    """
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from studies.sun_2024 import coverage_study
    from studies.sun_2024 import population as sun_2024_population
    from studies.sun_2024 import production as sun_2024_production

    alphabet = alphabet_lib.Alphabet(string.printable)
    parameters = {row.name: options.parameters(row) for row in SETTINGS[name]}
    for row, values in parameters.items():
        coverage_study.check_sizes(row, values, alphabet, options.num_clients)
    population = sun_2024_population.prepare(options, cache)

    def guarantees(tables, directory) -> dict[str, bytes]:
        del directory
        (only,) = parameters.values()
        return sun_2024_production.guarantees(only, alphabet, tables["levels"])

    return coverage_study.CoverageStudy(
        title=TITLES[name],
        settings=tuple(
            coverage_study.Setting(
                row.name, population, parameters[row.name], row.coverage
            )
            for row in SETTINGS[name]
        ),
        num_repeats=options.num_repeats,
        data={"population": population.fingerprint},
        alphabet=alphabet,
        seed=seed,
        notes=(*sun_2024_population.notes(options, population), INTERVALS),
        more_files=guarantees if name == "oov_production" else None,
    )
