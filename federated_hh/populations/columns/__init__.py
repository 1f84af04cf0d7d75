"""Clients' data as columns on disk, checked before they are believed."""
