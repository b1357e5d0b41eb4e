"""The dry-run API through the API server, for `check --server cluster` with a kubeconfig."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from linkwise.admission.dry_run.dryrun import PATH
from linkwise.cluster.dry_run_proxy import NAMESPACE_AUDIENCE, PROXY, TOKEN_HEADER, token_path
from linkwise.manifest.value import InputError
from linkwise.views.analysis.check_report import CheckReport
from linkwise.views.files.inputs import InputFiles
from linkwise.views.live.api_reader import ApiReader, Forbidden, NotFound, reason_of
from linkwise.views.live.dry_run_client import Endpoint, report_of, require_namespace
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.user_kube import UserKube

_LIFETIME = 600
"""Of the token [s]; the API server makes none for a shorter time."""


class _Status(Struct, frozen=True):
    token: str = ""


class _TokenRequest(Struct, frozen=True):
    status: _Status = _Status()


class MayNotEdit(InputError):  # noqa: N818 - an InputError about the user's rights.
    """The user may not make a token of the namespace."""


def dry_run_in_cluster(access: Access, files: InputFiles) -> tuple[CheckReport, tuple[str, ...]]:
    """Return the report of the webhook of a kubeconfig's cluster for files, as `report_of` does.

    Args:
        access: Chooses the cluster, the user, and the namespace of objects without one.
        files: The manifests; their namespace does not count.
    """
    return report_of(cluster_endpoint(access), files)


@asynccontextmanager
async def cluster_endpoint(access: Access) -> AsyncIterator[Endpoint]:
    """Yield the dry-run API of a kubeconfig's cluster, for pods of one namespace.

    Raises:
        MayNotEdit: The user may not edit the namespace.
        InputError: There is no answer.
    """
    async with await UserKube.of(access) as kube:
        require_namespace(kube.namespace)
        token = await _token(ApiReader(kube), kube.namespace)
        yield Endpoint(
            kube.sending({TOKEN_HEADER: f"Bearer {token}"}),
            kube.server,
            kube.namespace,
            lambda error: f"{reason_of(error)}. See whether kubectl gets an answer.",
            rejected="the dry-run API rejects a token of your namespace. Use the linkwise of its "
            "version.",
            unexpected="See whether linkwise-webhook is installed and ready, and use the linkwise "
            "of its version.",
            path=f"{PROXY}{PATH}",
        )


async def _token(reader: ApiReader, namespace: str) -> str:
    """Return a token that speaks for a namespace, which may be made by whoever may edit it."""
    spec = {"audiences": [NAMESPACE_AUDIENCE], "expirationSeconds": _LIFETIME}
    try:
        made = await reader.create(token_path(namespace), {"spec": spec}, _TokenRequest)
    except Forbidden as error:
        raise MayNotEdit(
            f"{reader.server}: {error}. Ask for the role edit in namespace {namespace}, "
            "or name another."
        ) from None
    except NotFound:
        reader.fail(f"there is no namespace {namespace}. Name another one with -n.")
    return made.status.token
