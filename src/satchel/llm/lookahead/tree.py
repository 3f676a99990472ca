"""Guesses as a tree behind the last token: what they have in common is computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class TokenTree:
    """Node 0 is the last token of the text; each other stands behind its parent.

    ``wanted`` are the nodes whose logits are asked for; only through these the text can go on.

    >>> tree = TokenTree(7, most=8)
    >>> tree.add_path([1, 2, 3]), tree.add_path([1, 4])
    ([1, 2, 3], [1, 4])
    >>> tree.tokens, tree.parents
    ([7, 1, 2, 3, 4], [-1, 0, 1, 2, 1])
    """

    def __init__(self, token: int, most: int) -> None:
        self.tokens = [token]
        self.parents = [-1]
        self.wanted = {0}
        self._most = most
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_line(self) -> bool:
        return all(parent == i - 1 for i, parent in enumerate(self.parents))

    @property
    def room(self) -> int:
        return self._most - len(self.tokens)

    def add(self, parent: int, token: int, wanted: bool = True) -> int | None:
        """The child of ``parent`` with this token, new if need be; None if the tree is full."""
        node = self._children.get((parent, token))
        if node is None:
            if self.room == 0:
                return None
            node = self._children[parent, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(parent)
        if wanted:
            self.wanted.add(node)
        return node

    def add_path(self, tokens: Iterable[int]) -> list[int]:
        """A guess from node 0 on, as far as there is room: its nodes."""
        nodes: list[int] = []
        node: int | None = 0
        for token in tokens:
            assert node is not None
            node = self.add(node, token)
            if node is None:
                break
            nodes.append(node)
        return nodes

    def accept(
        self, choose: Callable[[int, list[int]], int], limit: int
    ) -> tuple[list[int], list[int]]:
        """The nodes that the text goes through, and the tokens it goes on with.

        ``choose(node, path)`` is the model's own choice after a node, where ``path`` are the
        tokens chosen since node 0. At most ``limit`` tokens are chosen, the last of which is in
        no node.
        """
        nodes, chosen = [0], [choose(0, [])]
        while len(chosen) < limit:
            node = self._children.get((nodes[-1], chosen[-1]))
            if node is None or node not in self.wanted:
                break
            nodes.append(node)
            chosen.append(choose(node, chosen))
        return nodes, chosen
