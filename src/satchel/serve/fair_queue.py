"""Who is next: the clients take turns, each in the order in which it asked."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue in which one client with much to ask does not hold up the others.

    >>> queue: FairQueue[str] = FairQueue()
    >>> for item in ("a1", "a2", "a3", "b1"):
    ...     queue.put(item[0], item)
    >>> [queue.take() for _ in range(len(queue))]
    ['a1', 'b1', 'a2', 'a3']
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[T]] = OrderedDict()  # whose turn is next, first

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def put(self, client: str, item: T) -> None:
        self._of.setdefault(client, deque()).append(item)

    def take(self) -> T:
        client, items = next(iter(self._of.items()))
        item = items.popleft()
        del self._of[client]
        if items:
            self._of[client] = items  # behind the others
        return item

    def remove(self, item: T) -> None:
        """Take an item out, wherever it is; nothing happens if it is not there."""
        for client, items in self._of.items():
            if item in items:
                items.remove(item)
                if not items:
                    del self._of[client]
                return
