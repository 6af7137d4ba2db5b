"""What a call to a container engine may raise."""


class DockerFault(Exception):
    """Base of what a call may raise. The text is for people and names no secret."""


class EngineError(DockerFault):
    """Raised when the engine refuses or fails: `status` is HTTP's, `message` the engine's own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the container engine answered {status}: {message}")
        self.status = status
        self.message = message


class EngineGone(DockerFault):
    """Raised when the engine cannot be reached, or broke off.

    `may_have_acted` says whether the request may have reached it: then look at what it did.
    """

    def __init__(self, reason: str, *, fix: str, may_have_acted: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.may_have_acted = may_have_acted


class EngineForbidden(EngineGone):
    """Raised when the engine's socket is there, and not for us: trying again does not help."""


class EngineHung(EngineGone):
    """Raised when the engine took a call and did not answer it in time."""


class BadAnswer(DockerFault):
    """Raised when an answer is longer than its bound, or is not what the API says it is."""


class EngineTooOld(DockerFault):
    """Raised when engine and adapter have no version of the API in common."""
