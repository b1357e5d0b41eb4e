"""HTTP handler of the dry-run API, for users with a token."""

import re
from collections.abc import Awaitable, Sequence

import structlog

from linkwise.admission.dry_run.dryrun import (
    PATH,
    decode_namespaces,
    decode_result,
    dry_run_body,
    encode_dry_run,
    list_namespaces,
)
from linkwise.admission.dry_run.others import ABOUT_OTHERS, as_of_users, asks_about_others
from linkwise.cluster.dry_run_proxy import (
    NAMESPACE_AUDIENCE,
    SERVICE_ACCOUNT,
    TOKEN_HEADER,
    claimed_namespace,
    namespace_of_account,
)
from linkwise.cluster.finding import printable
from linkwise.cluster.keys import DRY_RUN_AUDIENCE
from linkwise.cluster.whatif_api import FitRequest, FitResult
from linkwise.manifest.value import InputError
from linkwise.runtime.http.authentication import Callers, UserInfo
from linkwise.runtime.http.authorization import is_allowed
from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import (
    JSON,
    HttpRequest,
    HttpResponse,
    Route,
    error_response,
    retry_later,
)
from linkwise.runtime.http.waiting_places import WaitingPlaces
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.process.clock import monotonic
from linkwise.runtime.process.turns import Turns
from linkwise.runtime.process.worker import BusyError, LimitError, Worker
from webhook.informers import Informers
from webhook.scorer_client import NoPlacementError, ScorerClient

DRY_RUNS = 4
"""Dry runs at once, so that admission keeps most of the processor."""
DRY_RUNS_OF_A_USER = 3
"""Of those that are in progress or wait for their turn."""
PROXIED = 50
"""Requests through the API server that wait for something, which all have its address. Where no
place is free, the namespace for which most wait loses one."""
_TAKES = frozenset({JSON, "application/yaml"})
_NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CREATE_PODS = {"verb": "create", "version": "v1", "resource": "pods"}
"""What a caller must be allowed in a namespace."""

_log = structlog.get_logger()


class DryRun:
    """The dry-run API: admission and placement of manifests, for authorized users."""

    def __init__(
        self, informers: Informers, kube: Kube, scorer: ScorerClient, worker: Worker
    ) -> None:
        """Create the handler.

        Args:
            informers: State of the cluster.
            kube: Client of the API server, for access reviews.
            scorer: Client of the scorer, for placements.
            worker: Child process that reads manifests.
        """
        self._informers = informers
        self._kube = kube
        self._scorer = scorer
        self._worker = worker
        self._callers = Callers(kube, DRY_RUN_AUDIENCE, monotonic)
        self._namespaces = Callers(kube, NAMESPACE_AUDIENCE, monotonic, field=TOKEN_HEADER)
        self._proxied = WaitingPlaces(Limits(requests=PROXIED))
        self._turns = Turns(DRY_RUNS, DRY_RUNS_OF_A_USER)

    def routes(self) -> list[Route]:
        """Return the routes for users."""
        return [Route("POST", PATH, self.dry_run, _TAKES)]

    def dry_run(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer the dry run of a manifest; a child process reads it.

        A token that says itself that it is of no namespace of the cluster waits for nothing.
        """
        namespace = _query_namespace(request.query)
        if namespace is None:
            return error_response(400, "the only query parameter is namespace=<name>")
        sent = request.headers.get(TOKEN_HEADER)
        if sent is None:
            return self._of_caller(request, namespace)
        claimed = claimed_namespace(sent)
        if claimed is None or claimed not in self._informers.namespaces:
            return self._namespaces.refusal
        return self._of_namespace(request, namespace, claimed)

    async def _of_caller(self, request: HttpRequest, namespace: str) -> HttpResponse:
        caller = await self._callers.user(request)
        if isinstance(caller, HttpResponse):
            return caller
        return await self._of_user(request, namespace, caller, None)

    async def _of_namespace(
        self, request: HttpRequest, namespace: str, claimed: str
    ) -> HttpResponse:
        async def answer() -> HttpResponse:
            caller = await self._namespaces.user(request, claimed)
            if isinstance(caller, HttpResponse):
                return caller
            home = namespace_of_account(caller.username)
            return await self._of_user(request, namespace, caller, home)

        return await self._proxied.wait(claimed, answer())

    async def _of_user(
        self, request: HttpRequest, namespace: str, caller: UserInfo, home: str | None
    ) -> HttpResponse:
        owner = _owner(caller.username)
        if refusal := self._turns.refusal(owner):
            return retry_later(refusal)
        await self._turns.begin(owner)
        try:
            return await self._dry_run(request.body, namespace, caller, home)
        except (InputError, BusyError, LimitError) as error:
            return _failed(error)
        except KubeError as error:
            _log.warning("Could not review access", err=str(error))
            return retry_later("the API server did not answer the review of your access")
        finally:
            self._turns.end(owner)

    async def _dry_run(
        self, body: bytes, namespace: str, caller: UserInfo, home: str | None
    ) -> HttpResponse:
        namespaces = decode_namespaces(await self._worker.run(list_namespaces, body, namespace))
        for name in namespaces:
            if refusal := await self._refusal(caller, home, name):
                return error_response(403, refusal)
        if reason := self._informers.not_ready_reason():
            return retry_later(reason)
        known = self._informers.namespaces
        result = decode_result(
            await self._worker.run(
                dry_run_body,
                body,
                namespace,
                {name: known.get(name) for name in namespaces},
                self._informers.config.snapshot,
                self._informers.capacity,
            )
        )
        fits = await self._fits(result.fit_request, home) if result.fit_templates else ()
        fields = {"user": caller.username, "templates": len(result.pods)}
        return HttpResponse(encode_dry_run(result, fits), fields=fields)

    async def _fits(self, request: FitRequest, home: str | None) -> Sequence[FitResult] | str:
        """Return the placements, or why they are not known; `home` as for `_refusal`."""
        if home is not None:
            if asks_about_others(request, home):
                return ABOUT_OTHERS
            request = as_of_users(request)
        try:
            return await self._scorer.fits(request)
        except NoPlacementError as error:
            return str(error)

    async def _refusal(self, caller: UserInfo, home: str | None, namespace: str) -> str:
        """Return why a caller may not ask about pods of a namespace; empty: it may.

        Args:
            caller: Who asks.
            home: The only namespace that the token is for: whoever could make it may write there.
                None: the caller's own rights count.
            namespace: The namespace.
        """
        name = printable(namespace)
        if home is not None:
            own = f"this token is for pods of namespace {home} alone, and not of {name}"
            return "" if namespace == home else own
        if await is_allowed(self._kube, caller, {**_CREATE_PODS, "namespace": namespace}):
            return ""
        return f"you may not create pods in namespace {name}"


def _owner(username: str) -> str:
    """Return in whose name a user asks: all ServiceAccounts of a namespace are one."""
    return username.rpartition(":")[0] if username.startswith(SERVICE_ACCOUNT) else username


def _failed(error: InputError | BusyError | LimitError) -> HttpResponse:
    match error:
        case InputError():
            return error_response(400, printable(str(error)))
        case BusyError():
            return retry_later("too many manifests are being checked: send it again")
        case LimitError():
            return error_response(
                413, f"the manifest cannot be checked: {error}; send less of it at once"
            )


def _query_namespace(query: str) -> str | None:
    """Return the namespace of a query; None where the query is invalid."""
    name, _, value = query.partition("=")
    if not query:
        return "default"
    return value if name == "namespace" and _NAMESPACE_NAME.fullmatch(value) else None
