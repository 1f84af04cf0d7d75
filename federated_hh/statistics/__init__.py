"""Interactive federated statistics (McMillan et al. 2022)."""
