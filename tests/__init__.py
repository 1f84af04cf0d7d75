"""Tests: the folders mirror the packages."""

import pathlib

# Of the checkout: not by a room, as beside this file are rooms of the same names.
ROOT = pathlib.Path(__file__).absolute().parents[1]
