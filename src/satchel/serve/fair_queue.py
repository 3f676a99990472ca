"""Who is next: the clients take turns, each in the order in which it asked."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
_MOST_OVERTAKEN = 16  # so many may go before one that is not ready; then all wait for it


@dataclass
class _Place(Generic[T]):
    item: T
    overtaken: int = 0


class FairQueue(Generic[T]):
    """A queue in which one client with much to ask does not hold up the others.

    >>> queue: FairQueue[str] = FairQueue()
    >>> for item in ("a1", "a2", "a3", "b1"):
    ...     queue.put(item[0], item)
    >>> queue.take(lambda item: item != "a1")  # which is not ready
    'a2'
    >>> [queue.take() for _ in range(len(queue))]
    ['b1', 'a1', 'a3']
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[_Place[T]]] = OrderedDict()  # whose turn is next, first

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def put(self, client: str, item: T) -> None:
        self._of.setdefault(client, deque()).append(_Place(item))

    def take(self, ready: Callable[[T], bool] = lambda _: True) -> T | None:
        """The next item that is ready; None if there is none, or one has been passed too often."""
        passed: list[_Place[T]] = []
        for client, places in self._of.items():
            for place in places:
                if ready(place.item):
                    for other in passed:
                        other.overtaken += 1
                    places.remove(place)
                    del self._of[client]
                    if places:
                        self._of[client] = places  # behind the others
                    return place.item
                if place.overtaken >= _MOST_OVERTAKEN:
                    return None
                passed.append(place)
        return None

    def remove(self, item: T) -> None:
        """Take an item out, wherever it is; nothing happens if it is not there."""
        for client, places in self._of.items():
            found = next((place for place in places if place.item == item), None)
            if found is not None:
                places.remove(found)
                if not places:
                    del self._of[client]
                return
