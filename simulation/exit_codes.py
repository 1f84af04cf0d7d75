"""The exit codes of programs, for programs that run others.

2 is absl's, of wrong flags, and 130 that of an interrupt.
"""

FAILED = 1
# A model would no longer be finite: the same flags end there again.
NOT_FINITE = 3
