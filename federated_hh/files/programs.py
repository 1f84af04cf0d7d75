"""The programs by their short names: the one list of them."""

# What `scripts/run` takes first, and the module that it runs.
PROGRAMS = {
    "triehh": "federated_hh.run_triehh",
    "ldp_triehh": "federated_hh.run_ldp_triehh",
    "statistics": "federated_hh.run_statistics",
    "algorithm": "federated_hh.run_algorithm",
    "training": "training.run_training",
    "pretrain": "training.pretrain",
    "predict_next_word": "training.predict_next_word",
    "evaluate_keyboard": "training.evaluate_keyboard",
    "accounting": "federated_hh.run_accounting",
    "fit_population": "federated_hh.fit_population",
    "compare": "federated_hh.compare",
}
# In a checkout only.
IN_A_CHECKOUT = {"reproduce": "scripts.reproduce"}


def short_name(module: str) -> str:
    """Returns what `scripts/run` calls a module's program: the module, of others."""
    names = {module: name for name, module in {**PROGRAMS, **IN_A_CHECKOUT}.items()}
    return names.get(module, module)


def console_scripts() -> dict[str, str]:
    """Returns the modules by the names that pyproject.toml installs them under."""
    return {
        module.rpartition(".")[2].replace("_", "-"): module
        for module in PROGRAMS.values()
    }
