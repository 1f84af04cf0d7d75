"""Private heavy hitters: words, tries, selection on the client, evaluation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "alphabet": ["Alphabet"],
        "contributions": ["ItemSampler"],
        "selection": ["WordSelection"],
        "word_questions": ["WordQuestions"],
    },
)
