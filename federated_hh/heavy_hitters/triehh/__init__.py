"""TrieHH (Zhu et al. 2020): algorithm, options and report."""
