"""What may go wrong with a model file, in words that say what to do."""

from collections.abc import Sequence


class ModelFault(Exception):
    """Base of what the model folder may raise. `reason` says what happened, `fix` what to do."""

    code = "MODEL_UNUSABLE"

    def __init__(self, reason: str, *, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class NotHeld(ModelFault):
    """Raised when the folder has no model of that name or digest."""

    code = "MODEL_NOT_FOUND"


class NotAModel(ModelFault):
    """Raised when a file is no GGUF model, or a broken one."""

    code = "MODEL_UNUSABLE"


class BadName(ModelFault):
    """Raised when a model cannot be kept under that name."""

    code = "MODEL_NAME_INVALID"


class Linked(ModelFault):
    """Raised when what is kept under a name is a link, which is not followed."""

    code = "MODEL_UNUSABLE"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is a link, and links are not followed",
            fix=f"bring the file itself: best-peer models remove {name}, then best-peer models add FILE",
        )


class NameTaken(ModelFault):
    """Raised when the folder keeps another model under that name."""

    code = "MODEL_NAME_TAKEN"


class Differs(ModelFault):
    """Raised when a file is not the one that was announced: its size or its digest differs."""

    code = "MODEL_DIFFERS"


class NoRoom(ModelFault):
    """Raised when the folder's file system has no room for the model."""

    code = "NO_ROOM"


class NotReadable(ModelFault):
    """Raised when the system refuses to read a source or to write the folder."""

    code = "MODEL_NOT_READABLE"


class InUse(ModelFault):
    """Raised when a model that a deployment serves would be removed."""

    code = "MODEL_IN_USE"

    def __init__(self, name: str, users: Sequence[str]) -> None:
        super().__init__(
            f"{name} is served by {', '.join(users)}",
            fix=f"undeploy {'it' if len(users) == 1 else 'them'} first, then remove the model",
        )
        self.users = tuple(users)
