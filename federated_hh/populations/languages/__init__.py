"""Tokenizers: text as words, and as sentences of words."""
