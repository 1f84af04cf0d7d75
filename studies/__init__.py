"""The papers' tables and figures: settings as data, one module a paper.

A module of a paper has `Options`, whose fields are the flags of its studies, and
`prepare(name, options, seed=..., cache=...)`, which returns the `study.Study` of that
name: with a seed, at least 0, of its first repeat, and a directory where prepared
populations are kept.
"""

# The module of each study; `scripts.reproduce --study` takes these names.
MODULES = {
    "finders": "studies.finders.finder_study",
    "gboard_strategy": "studies.xu_2023.gboard_strategy",
    "mcmillan_analyses": "studies.mcmillan_2022.analyses",
    "mcmillan_composition": "studies.mcmillan_2022.composition",
    "mcmillan_figure1": "studies.mcmillan_2022.privacy",
    "mcmillan_trust_models": "studies.mcmillan_2022.trust",
    "oov_table1": "studies.sun_2024.case_study",
    "oov_figure1": "studies.sun_2024.case_study",
    "oov_production": "studies.sun_2024.case_study",
    "oov_real_text": "studies.sun_2024.real_text",
    "sun_volume": "studies.sun_2024.volume",
    "training_blogs": "studies.xu_2023.mechanisms",
    "xu_figure4": "studies.xu_2023.figure4",
    "xu_guarantee": "studies.xu_2023.guarantee",
    "xu_quality": "studies.xu_2023.quality",
    "xu_quality_choice": "studies.xu_2023.quality",
    "xu_quality_synthetic": "studies.xu_2023.quality",
    "xu_scaling": "studies.xu_2023.scaling",
    "xu_secagg": "studies.xu_2023.secagg",
    "zhu_figure4": "studies.zhu_2020.experiments",
    "zhu_figure6": "studies.zhu_2020.experiments",
    "zhu_table2": "studies.zhu_2020.experiments",
    "zhu_table2_printed": "studies.zhu_2020.experiments",
    "zhu_theory": "studies.zhu_2020.theory",
}
