"""The conversations of one instance: each has its own cache, and they share their beginnings.

Whoever begins to generate takes a session. It is the one that went on with the same text before, or
a new one that shares the cache of the whole pages that its text has in common with another.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from satchel.errors import ExecutionError
from satchel.llm.session import Session
from satchel.program.names import PAGE


class Sessions:
    """Hands out sessions of one instance; those that are given back are kept for their text.

    At most ``most_idle`` of these are kept, the latest ones. Any thread may take and give back.
    """

    def __init__(self, first: Session, most_idle: int = 16) -> None:
        self.first = first
        self.adapter = first.adapter
        self._idle = [first]
        self._busy: list[Session] = []
        self.most_idle = most_idle
        self.longest_piece = first.longest_piece  # of the prompts of all sessions
        self._lock = threading.RLock()  # a collected generation gives back in the middle of a take

    @property
    def context(self) -> int:
        return self.first.context

    @property
    def latest(self) -> Session:
        """The one that was given back last."""
        return self._idle[-1] if self._idle else self.first

    def use_adapter(self, adapter: str | None) -> None:
        """What generations from now on are made with."""
        self.first.check_adapter(adapter)
        self.adapter = adapter

    def take(self, tokens: Sequence[int], adapter: str | None = None) -> Session:
        """A session whose cache holds as many of the first tokens as any has, and nothing else."""
        with self._lock:
            session = self._find(tokens, adapter)
            self._prepare(session)
            self._busy.append(session)
            return session

    def _find(self, tokens: Sequence[int], adapter: str | None) -> Session:
        def common(sessions: Sequence[Session]) -> tuple[int, Session | None]:
            same = [(s.common_prefix(tokens), s) for s in sessions if s.adapter == adapter]
            return max(same, key=lambda pair: pair[0], default=(0, None))

        length, idle = common(self._idle)
        shared, owner = common([*self._idle, *self._busy])
        pages = shared - shared % PAGE
        # Going on with a session costs the rest of its text, which is not worth a copy if short.
        if idle is not None and length >= max(1, pages) and idle.position - length < PAGE:
            self._idle.remove(idle)
            idle.rewind(length)
            return idle
        try:
            if owner is not None and pages:
                return owner.fork(pages)
            return self._new(adapter)
        except ExecutionError:  # there is one sequence only
            if not self._idle:
                raise
            session = self._idle.pop()
            if session.adapter != adapter:
                session.use_adapter(adapter)
            session.rewind(session.common_prefix(tokens))
            return session

    def _new(self, adapter: str | None) -> Session:
        unused = next((s for s in self._idle if not s.position), None)
        if unused is not None:
            self._idle.remove(unused)
            if unused.adapter != adapter:
                unused.use_adapter(adapter)
            return unused
        first = self.first
        return Session(first.program, mode=first.mode, instance=first.instance, adapter=adapter)

    def apart(self, adapter: str | None = None) -> Session:
        """One that nobody else gets, for work that is no generation; to be closed at its end."""
        first = self.first
        session = Session(first.program, mode=first.mode, instance=first.instance, adapter=adapter)
        self._prepare(session)
        return session

    def _prepare(self, session: Session) -> None:
        session.make_room = self.drop_oldest
        session.longest_piece = self.longest_piece

    def give_back(self, session: Session) -> None:
        """The session is done; its cache is kept for texts that begin alike."""
        with self._lock:
            if session in self._busy:
                self._busy.remove(session)
            self._idle.append(session)
            # The first one stays, even if none is to be kept.
            while len(self._idle) > self.most_idle and self.drop_oldest():
                pass

    def forget(self) -> None:
        """Empty the caches of all idle sessions, so that the next prompt is read as a whole."""
        while self.drop_oldest():
            pass

    def drop_oldest(self) -> bool:
        """Free the cache of the session that was idle for longest; False if there is none."""
        with self._lock:
            oldest = next((s for s in self._idle if s is not self.first), None)
            if oldest is not None:
                self._idle.remove(oldest)
                oldest.close()
                return True
            emptied = self.first in self._idle and self.first.position > 0
            if emptied:  # callers may hold it, so it stays
                self.first.rewind(0)
            return emptied
