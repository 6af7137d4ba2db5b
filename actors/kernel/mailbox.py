"""Bounded mailboxes, and the reply that an asker waits for.

The supervisor owns a mailbox, not the actor: it outlives a crash, so a crash costs at most the message
that was being handled.
"""

from typing import Generic, TypeVar, cast

import attrs
import trio

T = TypeVar("T")
A = TypeVar("A")

_UNSET = object()
_ENDED = "the actor has ended"


class MailboxFull(Exception):
    """Raised when a mailbox holds as many messages as it may, and the sender must not wait."""


class ActorStopped(Exception):
    """Raised to whoever writes to an actor that has ended, or asked one that ended or crashed over it."""


@attrs.frozen
class MailboxStatistics:
    """Attributes:

    depth: messages waiting now.
    peak: most messages that ever waited.
    capacity: how many may wait.
    """

    depth: int
    peak: int
    capacity: int


class Reply(Generic[T]):
    """A one-shot answer. Setting it never blocks; a waiter who left is harmless."""

    __slots__ = ("_done", "_error", "_value")

    def __init__(self) -> None:
        self._done: trio.Event | None = None
        self._error: Exception | None = None
        self._value: object = _UNSET

    @property
    def is_set(self) -> bool:
        """Whether an answer or an error is there."""
        return self._value is not _UNSET or self._error is not None

    def set(self, value: T) -> None:
        """Answer; the first answer stays."""
        if not self.is_set:
            self._value = value
            if self._done is not None:
                self._done.set()

    def fail(self, error: Exception) -> None:
        """Answer with an error; the first answer stays."""
        if not self.is_set:
            self._error = error
            if self._done is not None:
                self._done.set()

    async def wait(self) -> T:
        """Wait for the answer. The caller owns the deadline."""
        if not self.is_set:
            # Made only when somebody waits: most replies are set before anyone asks for them.
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


@attrs.define(slots=True)
class Ask(Generic[T]):
    """Base of a message that is answered. Subclass it and add the question's fields.

    An actor answers before it takes its next message; one that keeps a question for later answers for it
    itself, also when it ends.
    """

    reply: Reply[T] = attrs.field(factory=Reply, init=False, repr=False, eq=False)


class Mailbox(Generic[T]):
    """A bounded queue of messages with one reader, kept by the supervisor across restarts."""

    __slots__ = ("_current", "_receive", "_send")

    def __init__(self, capacity: int) -> None:
        self._send, self._receive = trio.open_memory_channel[T](capacity)
        self._current: T | None = None

    async def tell(self, message: T) -> None:
        """Put a message in, waiting while the mailbox is full.

        Raises:
            ActorStopped: the actor has ended.
        """
        try:
            await self._send.send(message)
        except trio.BrokenResourceError:
            raise ActorStopped(_ENDED) from None

    def tell_nowait(self, message: T) -> None:
        """Put a message in.

        Raises:
            MailboxFull: there is no room.
            ActorStopped: the actor has ended.
        """
        try:
            self._send.send_nowait(message)
        except trio.WouldBlock:
            raise MailboxFull from None
        except trio.BrokenResourceError:
            raise ActorStopped(_ENDED) from None

    async def ask(self, question: Ask[A]) -> A:
        """Put a question in and wait for its answer. The caller owns the deadline.

        Raises:
            ActorStopped: the actor has ended, or crashed over the question.
        """
        await self.tell(cast("T", question))
        return await question.reply.wait()

    async def receive(self) -> T:
        """Take the next message. From then on until the next call it is the one being handled."""
        self._current = None
        message = await self._receive.receive()
        self._current = message
        return message

    def statistics(self) -> MailboxStatistics:
        """How full it is and was."""
        channel = self._send.statistics()
        return MailboxStatistics(
            channel.current_buffer_used, channel.peak_buffer_used, int(channel.max_buffer_size)
        )

    def drop_current(self) -> T | None:
        """After a crash: answer the message being handled with `ActorStopped`, and return it."""
        message, self._current = self._current, None
        _refuse(message)
        return message

    def refuse_all(self) -> None:
        """Answer everything left with `ActorStopped`."""
        self.drop_current()
        while True:
            try:
                _refuse(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break

    def close(self) -> None:
        """Answer everything left with `ActorStopped` and take no more."""
        self.refuse_all()
        self._receive.close()


def _refuse(message: object) -> None:
    if isinstance(message, Ask):
        message.reply.fail(ActorStopped("the actor ended before it answered"))
