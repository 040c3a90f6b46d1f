"""How workflow code is left when it has to wait. Not an Exception, so that ``except Exception`` cannot hold it."""

from __future__ import annotations


class Suspended(BaseException):
    """The execution is parked; its body is unwound and will be replayed when it wakes."""


class Stopped(BaseException):
    """The turn must end without a word: the lease is lost, or a dry run has seen enough."""


class Continued(BaseException):
    """The body ends, and a new execution goes on with ``input``."""

    def __init__(self, input: str) -> None:
        self.input = input
        """JSON text of the keyword arguments."""
        super().__init__()
