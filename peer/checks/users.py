"""Users of this machine, by name where they have one."""

import pwd


def user_name(uid: int) -> str:
    """The user's name, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
