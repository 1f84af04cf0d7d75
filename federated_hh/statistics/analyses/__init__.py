"""Analyses: recipes that depend on earlier answers, and their reports."""
