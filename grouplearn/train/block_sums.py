"""Sums over the blocks of a group, merged in a fixed binary tree over block numbers, whoever computed them and in any
order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

Sums = TypeVar("Sums")
Merge = Callable[[Sums, Sums], Sums]


@dataclass(frozen=True, slots=True)
class Subtree(Generic[Sums]):
    """The sums of blocks ``index·2^level`` to ``(index + 1)·2^level - 1``; None when they have no rows."""

    level: int
    index: int
    sums: Sums | None

    @property
    def first(self) -> int:
        """Number of the first block."""
        return self.index << self.level

    @property
    def last(self) -> int:
        """Number of the last block, plus 1."""
        return (self.index + 1) << self.level

    def is_sibling_of(self, right: Subtree[Sums]) -> bool:
        """Whether this and the other are the left and right halves of one subtree."""
        return self.level == right.level and self.index % 2 == 0 and self.index + 1 == right.index


@dataclass(frozen=True, slots=True)
class BlockSums(Generic[Sums]):
    """Sums of any set of blocks, stored as those of the largest aligned complete subtrees of the set, in order.

    The subtrees depend only on the set, and a subtree's sums are always those of its left half merged with those of its
    right half: pairwise summation (Higham 1993) over a forest like a Merkle mountain range. So every way of cutting blocks
    into parts and merging them gives the same bits.
    """

    subtrees: tuple[Subtree[Sums], ...] = ()

    @classmethod
    def of(cls, block: int, sums: Sums | None) -> BlockSums[Sums]:
        """Return the sums of one block, None if it has no rows."""
        return cls((Subtree(0, block, sums),))

    @property
    def n_blocks(self) -> int:
        """Number of blocks summed."""
        return sum(1 << each.level for each in self.subtrees)

    def merged(self, other: BlockSums[Sums], merge: Merge[Sums]) -> BlockSums[Sums]:
        """Return the sums of both sets of blocks; ValueError if they overlap."""
        if not self.subtrees or not other.subtrees:
            return self if self.subtrees else other
        forest: list[Subtree[Sums]] = []
        for subtree in sorted((*self.subtrees, *other.subtrees), key=lambda each: each.first):
            if forest and forest[-1].last > subtree.first:
                raise ValueError(f"block {subtree.first} was summed twice")
            forest.append(subtree)
            while len(forest) > 1 and forest[-2].is_sibling_of(forest[-1]):
                right, left = forest.pop(), forest.pop()
                forest.append(Subtree(left.level + 1, left.index // 2, _either(left.sums, right.sums, merge)))
        return BlockSums(tuple(forest))

    def each(self, change: Callable[[Sums], Sums]) -> BlockSums[Sums]:
        """Return the result of applying ``change`` to the sums of every subtree."""
        changed = (each if each.sums is None else replace(each, sums=change(each.sums)) for each in self.subtrees)
        return BlockSums(tuple(changed))

    def total(self, n_blocks: int, merge: Merge[Sums]) -> Sums | None:
        """Return the sums of a whole group of ``n_blocks``, None if it has no rows; ValueError if a block is missing."""
        if self.n_blocks != n_blocks or (self.subtrees and self.subtrees[-1].last != n_blocks):
            raise ValueError(f"{self.n_blocks} blocks were summed where the group has {n_blocks}")
        total: Sums | None = None
        for subtree in self.subtrees:
            total = _either(total, subtree.sums, merge)
        return total


def _either(left: Sums | None, right: Sums | None, merge: Merge[Sums]) -> Sums | None:
    if left is None or right is None:
        return right if left is None else left
    return merge(left, right)
