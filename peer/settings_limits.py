"""The settings of what a key may ask of the door in how short a time, and of the log (F6, F7, F33)."""

from __future__ import annotations

import attrs

from peer.logs import SPEC_EXPECTED, LogSpec, parse_log_spec
from peer.setting import entry, whole_number


@attrs.frozen(kw_only=True, slots=False)
class LimitSettings:
    """What a key with a share may do at most, and how loud the log is."""

    commands_per_minute: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_COMMANDS_PER_MINUTE",
            default="60",
            parse=whole_number,
            takes="a number from 1 on",
            help="How many new commands a key with a share may send in any sixty seconds.",
        )
    )
    streams_per_credential: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_STREAMS_PER_CREDENTIAL",
            default="4",
            parse=whole_number,
            takes="a number from 1 on",
            help="How many event streams a key with a share may hold open.",
        )
    )
    log: LogSpec = attrs.field(
        metadata=entry(
            name="BEST_PEER_LOG",
            default="info",
            parse=parse_log_spec,
            takes=SPEC_EXPECTED,
            help="How loud the log on stderr is: info,door=warning leaves out a line for each request.",
        )
    )
