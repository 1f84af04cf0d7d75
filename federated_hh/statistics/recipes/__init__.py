"""Recipes: the queries that an analyst sends, and the data they read."""
