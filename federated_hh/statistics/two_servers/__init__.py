"""Sums by two servers that do not collude (Corrigan-Gibbs and Boneh 2017, Prio)."""
