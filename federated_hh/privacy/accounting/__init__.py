"""The accounting command's questions and answers, and the papers' tables."""
