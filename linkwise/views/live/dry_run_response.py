"""The response of the webhook's dry-run API. Pure."""

from msgspec import Struct
from msgspec.structs import replace

from linkwise.admission.dry_run.dryrun import BODY_NAME
from linkwise.manifest.workload import Unjudged
from linkwise.views.analysis.check_report import CheckReport, TemplateReport


class PolicyVersion(Struct, frozen=True):
    """The policy that was applied."""

    generation: int
    digest: str


class DryRun(Struct, frozen=True):
    """The response of the dry-run API."""

    pods: tuple[TemplateReport, ...]
    """One for each pod template."""
    warnings: tuple[str, ...]
    """Objects that were passed over, and guesses."""
    policy: PolicyVersion | None = None
    """The policy that was applied."""
    notes: tuple[str, ...] = ()
    """Unknown facts, although the request is correct."""
    unjudged: tuple[Unjudged, ...] = ()
    """Objects that may create pods and were not judged. Also among `warnings`."""

    def report(self, file: str) -> CheckReport:
        """Return the report about a file, whose name replaces that of the request's body."""
        passed_over = {item.sentence for item in self.unjudged}
        return CheckReport(
            items=tuple(_item(pod, file) for pod in self.pods),
            unjudged=tuple(
                replace(item, source=placed(item.source, file)) for item in self.unjudged
            ),
            warnings=tuple(placed(text, file) for text in self.warnings if text not in passed_over),
            notes=self.notes,
        )


def _item(pod: TemplateReport, file: str) -> TemplateReport:
    """Return an entry whose sources name the file instead of the request body."""
    findings = tuple(replace(each, source=placed(each.source, file)) for each in pod.findings)
    return replace(pod, source=placed(pod.source, file), findings=findings)


def placed(text: str, file: str) -> str:
    """Return a message about a line of the request's body as one about a line of the file."""
    return file + text.removeprefix(BODY_NAME) if text.startswith(f"{BODY_NAME}:") else text
