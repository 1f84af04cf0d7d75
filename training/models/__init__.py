"""Next-word models: the CIFG-LSTM, custom models, and their metrics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "model": ["LanguageModel"],
    },
)
