"""What ends a run, each with its exit code."""


class Problem(Exception):
    """Raised to end the run; the text is for the person and says what to do."""

    ends_with = 1


class Refused(Problem):
    """Raised when the service said no, or what was ordered came to a bad end."""


class Faulty(Problem):
    """Raised when an answer is not what the protocol, or the service's own document, promises."""


class Unreachable(Problem):
    """Raised when there is no service to talk to, or the machine this runs on is in the way."""

    ends_with = 2
