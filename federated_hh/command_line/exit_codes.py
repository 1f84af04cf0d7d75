"""The exit codes of programs, for programs that run others.

130 is that of an interrupt.
"""

FAILED = 1
# Flags or data do not fit, as absl has it: no run was begun.
WRONG_USE = 2
# A model would no longer be finite: the same flags end there again.
NOT_FINITE = 3
