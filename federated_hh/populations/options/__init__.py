"""Options that say what a population is made of."""
