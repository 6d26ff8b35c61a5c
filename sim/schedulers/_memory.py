"""KV blocks as a scheduler hands them out: what it has allocated, which may be more than what is computed."""

from __future__ import annotations

from sim.instance import Instance


class Memory:
    """Blocks allocated per request.

    Attributes
    ----------
    held
        Blocks per request that holds any.
    used_blocks
        Their sum.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.total_blocks = instance.kv_blocks
        self.held: dict[int, int] = {}
        self.used_blocks = 0

    @property
    def free_blocks(self) -> int:
        """Blocks nobody holds."""
        return self.total_blocks - self.used_blocks

    def missing(self, i: int, kv_tokens: int) -> int:
        """Blocks request i still needs to hold this many KVs; 0 when it has room."""
        return max(0, self.instance.blocks(kv_tokens) - self.held.get(i, 0))

    def hold(self, i: int, kv_tokens: int) -> None:
        """Grow request i's blocks to hold this many KVs."""
        missing = self.missing(i, kv_tokens)
        self.held[i] = self.held.get(i, 0) + missing
        self.used_blocks += missing

    def release(self, i: int) -> None:
        """Free all blocks of request i, if it holds any."""
        self.used_blocks -= self.held.pop(i, 0)
