"""Shared prompt prefixes: whose KVs are resident once for all requests that share them.

Part of the rules module. A prefix's KVs become resident when a request that shares it has processed them; requests that
start filling later begin behind them. In the batch in which several requests compute the same prefix each pays for it
and the copies are merged. Only what a request does not share is dropped when it is preempted; a prefix nobody uses
stays resident, as a cache, until a batch drops it (Kim et al., section 8.2: SGLang's prefix tree, one level deep).
"""

from __future__ import annotations

from sim.instance import Instance


class Prefixes:
    """Which prefixes are resident and who uses them.

    Attributes
    ----------
    resident
        KV tokens of each resident prefix, by name.
    users
        Number of requests attached to each resident prefix.
    attached
        Per request, the shared KV tokens it stands on; 0 if it is not attached.
    """

    def __init__(self, instance: Instance) -> None:
        self.names = [r.prefix for r in instance.requests]
        self.tokens = [r.prefix_tokens for r in instance.requests]
        self.resident: dict[str, int] = {}
        self.users: dict[str, int] = {}
        self.attached = [0] * len(instance.requests)

    def hit(self, i: int) -> int:
        """KV tokens a request would find resident if it started to fill now."""
        name = self.names[i]
        return 0 if name is None or name not in self.resident else self.tokens[i]

    def can_attach(self, i: int, kv_tokens: int) -> bool:
        """Whether a request that holds so many KVs has its whole prefix among them and does not stand on it yet."""
        return self.names[i] is not None and not self.attached[i] and kv_tokens >= self.tokens[i]

    def attach(self, i: int) -> int:
        """Stand a request on its prefix; the KV tokens that become resident by it (0 if they were)."""
        name = self.names[i]
        assert name is not None
        new = 0 if name in self.resident else self.tokens[i]
        self.resident[name] = self.tokens[i]
        self.users[name] = self.users.get(name, 0) + 1
        self.attached[i] = self.tokens[i]
        return new

    def detach(self, i: int) -> None:
        """The request lets go of its prefix, which stays resident."""
        name = self.names[i]
        if self.attached[i] and name is not None:
            self.users[name] -= 1
            self.attached[i] = 0

    def drop(self, name: str) -> int | None:
        """Drop an unused prefix; its KV tokens, or None if it is not resident or in use."""
        if name not in self.resident or self.users[name]:
            return None
        del self.users[name]
        return self.resident.pop(name)
