"""Populations that benchmarks have in common."""

from simulation import population_options

# Clients as in Table 1 of Sun et al. 2024 as it is reproduced here: with the habits of
# bloggers among the words that are seldom typed.
HABITS = population_options.PopulationOptions(
    tokenizer="whitespace",
    mean_words_per_client=132,
    words_per_client_sigma=1.11,
    client_law="pitman_yor",
    client_discount=0.81,
    client_concentration=22.0,
    common_law="pitman_yor",
    common_discount=0.095,
    common_concentration=15_030.0,
)
