"""Authenticate the callers of our APIs by TokenReview, which forged tokens cannot crowd out.

Results hold for some seconds, also that a token is not valid. A token that was never valid here is
reviewed in one of few places, of which each address, or what stands for it, has some, and which a
forged one holds for a moment: that bounds the reviews of a flood. Tokens that were valid have
places of their own.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from weakref import WeakValueDictionary

from msgspec import Struct

from linkwise.runtime.http.reviews import Review, Reviews
from linkwise.runtime.http.types import HttpRequest, HttpResponse, error_response
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.clock import Clock

AT_ONCE = 16
"""Reviews of new tokens at once, and as many of known ones: few beside the hundreds of requests
that an API server answers at once by default."""
OF_AN_ADDRESS = 4
"""Reviews of new tokens of one address at once."""
FORGED = 0.25
"""How long a token that is not valid holds its place after its review [s]: each address has 16
such reviews a second at most, and all together 64."""
REFUSED = 10.0
"""How long it counts that a token is not valid [s]."""
REFUSED_KEPT = 2000

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_NONE: Mapping[str, str] = {}


class UserInfo(Struct, frozen=True):
    """A user, as the API server identifies it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenReviewStatus(Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] = []


class _TokenReview(Struct, frozen=True):
    status: _TokenReviewStatus = _TokenReviewStatus()


class Callers:
    """The callers of one API."""

    def __init__(
        self,
        kube: Kube,
        audience: str,
        clock: Clock,
        headers: Mapping[str, str] = _NONE,
        field: str = "Authorization",
    ) -> None:
        """Start without callers; an event loop must run.

        A token for the API server itself is refused: a process that reads it here could use it
        there.

        Args:
            kube: Client of the API server.
            audience: The audience that tokens must have.
            clock: A monotonic clock [s].
            headers: Of refusals.
            field: The header that has the token.
        """
        self._kube, self._audience, self._clock = kube, audience, clock
        self._field = field
        self._loop = asyncio.get_running_loop()
        self.refusal = error_response(
            401,
            f"no token is sent, or it is not accepted: send one for the audience {audience}",
            {**headers, "WWW-Authenticate": "Bearer"},
        )
        """Of a token that is not accepted."""
        self._users: Reviews[bytes, UserInfo] = Reviews(clock, headers)
        """By the digest of a token."""
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        """When tokens that are not valid may be reviewed again, by their digests."""
        self._known, self._new = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_ONCE)
        self._by_share: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Kept by the requests that use them."""

    async def user(self, request: HttpRequest, share: str | None = None) -> UserInfo | HttpResponse:
        """Return the caller of a request, or the refusal.

        Args:
            request: The request.
            share: Who has the places of an address; None: the address.

        Without an answer of the API server every caller is refused: a token may have been revoked.
        """
        scheme, _, token = request.headers.get(self._field, "").partition(" ")
        # An API server reads the first word alone: one token would have any number of forms.
        if scheme != "Bearer" or token.split() != [token]:
            return self.refusal
        digest = sha256(token.encode(errors="surrogatepass")).digest()
        if self._users.knows(digest):
            return await self._users.get(digest, lambda: self._review_known(token, digest))
        if self._clock() < self._refused.get(digest, 0.0):
            return self.refusal
        return await self._new_user(token, digest, request.peer if share is None else share)

    async def _new_user(self, token: str, digest: bytes, share: str) -> UserInfo | HttpResponse:
        of_share = self._by_share.setdefault(share, asyncio.Semaphore(OF_AN_ADDRESS))
        place = _Place(of_share, self._new)
        await place.take()
        has_begun = False

        def review() -> Review[UserInfo]:
            nonlocal has_begun
            has_begun = True
            return self._review_new(token, digest, place)

        try:
            if self._clock() < self._refused.get(digest, 0.0):
                return self.refusal
            return await self._users.get(digest, review)
        finally:
            # Else the review holds the place, also if the client leaves.
            if not has_begun:
                place.give_back()

    async def _review_known(self, token: str, digest: bytes) -> UserInfo | HttpResponse:
        async with self._known:
            return await self._review(token, digest)

    async def _review_new(
        self, token: str, digest: bytes, place: "_Place"
    ) -> UserInfo | HttpResponse:
        user: UserInfo | HttpResponse | None = None
        try:
            user = await self._review(token, digest)
        finally:
            self._loop.call_later(FORGED if user is self.refusal else 0.0, place.give_back)
        return user

    async def _review(self, token: str, digest: bytes) -> UserInfo | HttpResponse:
        """Return the user of a token.

        Raises:
            KubeError: The API server does not answer, or refuses the review.
        """
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        status = (await self._kube.create(_REVIEWS, body, _TokenReview)).status
        # An API server that does not support audiences returns none; the token may be for any.
        if status.authenticated and self._audience in status.audiences:
            return status.user
        self._refused[digest] = self._clock() + REFUSED
        self._refused.move_to_end(digest)
        if len(self._refused) > REFUSED_KEPT:
            self._refused.popitem(last=False)
        return self.refusal


class _Place:
    """A place for the review of a new token."""

    def __init__(self, of_address: asyncio.Semaphore, of_all: asyncio.Semaphore) -> None:
        self._of_address, self._of_all = of_address, of_all

    async def take(self) -> None:
        """Wait for a place of the address, then for one of all."""
        await self._of_address.acquire()
        try:
            await self._of_all.acquire()
        except BaseException:
            self._of_address.release()
            raise

    def give_back(self) -> None:
        """Let another request have it."""
        self._of_address.release()
        self._of_all.release()
