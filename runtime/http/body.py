"""Bodies: never more than allowed, of one request and of all of them together."""

from runtime.http.limits import Limits
from runtime.http.types import HttpResponse, busy, refusal


class Budget:
    """Bytes of bodies that are held now, over all requests."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Hold some more, if they fit."""
        if self.held + size > self.limit:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """Let go of what was taken."""
        self.held -= size


class Body:
    """One request's body, and what it takes of the budget until it is closed.

    What is counted is what has arrived: were it what a header announces, heads alone could use the
    budget up.
    """

    __slots__ = ("_budget", "_limits", "_pieces", "size")

    def __init__(self, budget: Budget, limits: Limits) -> None:
        self._budget = budget
        self._limits = limits
        self._pieces: list[bytes] = []
        self.size = 0

    def unwelcome(self, announced: int) -> HttpResponse | None:
        """Return why a body of an announced size [bytes] is refused before it comes."""
        return _too_large(self._limits) if announced > self._limits.body_bytes else None

    def take(self, piece: bytes) -> HttpResponse | None:
        """Keep what has arrived, or return why it is refused."""
        size = len(piece)
        if self.size + size > self._limits.body_bytes:
            return _too_large(self._limits)
        if not self._budget.take(size):
            return busy("too many bytes of requests are being held: send it again")
        self.size += size
        self._pieces.append(piece)
        return None

    def whole(self) -> bytes:
        """Return all that was kept."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def close(self) -> None:
        """Give back what was taken."""
        self._budget.give_back(self.size)
        self._pieces.clear()


def _too_large(limits: Limits) -> HttpResponse:
    return refusal(413, f"the body is larger than {limits.body_bytes} bytes")
