"""Options that know their range and meaning, and flags made of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "fields": ["OptionError", "check", "fields_of", "option"],
        "option_flags": ["OptionFlags", "define"],
    },
)
