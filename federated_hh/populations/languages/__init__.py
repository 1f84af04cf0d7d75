"""Tokenizers: text as words, and as sentences of words."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "sentence_tokenizers": ["get_sentence_tokenizer"],
        "tokenizers": ["Tokenizer", "get_tokenizer"],
    },
)
