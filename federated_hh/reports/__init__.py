"""Report pages, plots, and the summary at the end of a run."""
