"""Asks a dry-run API about files, for `check --server`, and says what to do where it fails."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NoReturn

from linkwise.admission.dry_run.dryrun import BODY_NAME, PATH
from linkwise.manifest.value import InputError
from linkwise.manifest.workload import NO_PODS
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreachable
from linkwise.views.analysis.check_report import CheckReport
from linkwise.views.files.inputs import InputFiles
from linkwise.views.files.source import read_text, shown_name
from linkwise.views.live.dry_run_response import DryRun, placed
from linkwise.views.output.progress import with_progress

MAX_BYTES = 64 * 1024 * 1024
"""Largest response that is read; one for 100 templates is about 1 MB."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A dry-run API, and what people do where it refuses them."""

    kube: Kube
    """A client of the server that is called; it is open."""
    url: str
    """Its address, for messages."""
    namespace: str
    """Of objects without one."""
    why_unreachable: Callable[[BaseException], str]
    """Returns why there is no response, and what to do."""
    rejected: str
    """The message where the token is rejected."""
    unexpected: str
    """What to do if something else answers."""
    path: str = PATH


def report_of(
    endpoint: AbstractAsyncContextManager[Endpoint], files: InputFiles
) -> tuple[CheckReport, tuple[str, ...]]:
    """Return the report of a dry-run API for files; each file is one request.

    Also return why files could not be read, here or there: a line each.

    Raises:
        InputError: A request fails; one line that says what to do.
    """
    _refuse_other_files(files)
    reports, unreadable = asyncio.run(_post_files(endpoint, files))
    entries = tuple(entry for report in reports for entry in report.items)
    texts_once = dict.fromkeys(text for report in reports for text in report.warnings)
    warnings = [text for text in texts_once if text != NO_PODS]
    if not entries and not unreadable:
        warnings.append(NO_PODS)
    report = CheckReport(
        items=entries,
        unjudged=tuple(unjudged for report in reports for unjudged in report.unjudged),
        warnings=tuple(warnings),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
    )
    return report, tuple(unreadable)


async def _post_files(
    opened: AbstractAsyncContextManager[Endpoint], files: InputFiles
) -> tuple[list[CheckReport], list[str]]:
    """Return a report for each file, and why the other files cannot be read."""
    reports: list[CheckReport] = []
    unreadable: list[str] = []
    async with opened as endpoint:
        for name in with_progress(files.manifests, "Checking files"):
            try:
                body = read_text(name).encode()
            except InputError as error:
                unreadable.append(str(error))
                continue
            try:
                reports.append(await _post(endpoint, shown_name(name), body))
            except _FileRefused as error:
                unreadable.append(str(error))
    return reports, unreadable


def require_namespace(name: str) -> None:
    """Check that a namespace can have a name.

    Raises:
        InputError: None can.
    """
    if not _NAMESPACE.fullmatch(name):
        raise InputError(f"--namespace {name}: no namespace can have this name.")


def _refuse_other_files(files: InputFiles) -> None:
    for option, file in (
        ("--policy", files.policy),
        ("--profile", files.profile),
        ("--cluster", files.cluster),
    ):
        if file is not None:
            raise InputError(
                f"{option} cannot be given with --server, which has its own. Leave one of them out."
            )


class _FileRefused(InputError):  # noqa: N818 - an InputError about one file; others may follow.
    """The server cannot read a file."""


async def _post(endpoint: Endpoint, file: str, body: bytes) -> CheckReport:
    """Return the report for one file, with line numbers in that file.

    Raises:
        _FileRefused: The server cannot read this file.
        InputError: The request fails.
    """
    try:
        response = await endpoint.kube.post(
            endpoint.path,
            body,
            DryRun,
            # JSON files are valid YAML, too.
            content_type="application/yaml",
            params={"namespace": endpoint.namespace},
            max_bytes=MAX_BYTES,
        )
    except ApiError as error:
        _refuse(endpoint, error.status, error.message.partition("\n")[0], file)
    except Unreachable as error:
        _fail(endpoint, endpoint.why_unreachable(error.__cause__ or error))
    except KubeError:
        _fail_unexpected(endpoint, "with something else")
    return response.report(file)


def _refuse(endpoint: Endpoint, status: int, reason: str, file: str) -> NoReturn:
    match status:
        case 400 if reason.startswith(f"{BODY_NAME}:"):
            raise _FileRefused(placed(reason, file)) from None
        case 400:
            _fail(endpoint, f"it cannot read {file}: {reason}. Correct the file.")
        case 401:
            _fail(endpoint, endpoint.rejected)
        case 403:
            _fail(endpoint, f"{reason}. Ask for a role that may, or name another namespace.")
        case 413:
            _fail(endpoint, f"{file} is too much for one question: {reason}. Split it.")
        case 503:
            _fail(endpoint, f"{reason}. Try again in a moment.")
        case _:
            _fail_unexpected(endpoint, f"with status {status}")


def _fail_unexpected(endpoint: Endpoint, response: str) -> NoReturn:
    _fail(
        endpoint,
        f"it answers {response}, not as this version's dry-run API does. {endpoint.unexpected}",
    )


def _fail(endpoint: Endpoint, message: str) -> NoReturn:
    raise InputError(f"{endpoint.url}: {message}") from None
