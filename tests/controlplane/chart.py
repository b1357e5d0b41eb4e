"""The Helm chart, rendered without a cluster; run as `python -m controlplane.chart`.

Then it renders the manifests that kustomize reads: charts/linkwise/templates/X/Y.yaml becomes
manifests/X/Y.yaml. It also copies the schemas of the policy and of the settings of processes into
that of the chart's values, and writes the table of values in its README.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from controlplane.chart_programs import chart_binaries
from controlplane.chart_readme import README, readme
from controlplane.manifests import NAMESPACE, ROOT

from agent.settings import Settings as AgentSettings
from certs.settings import Settings as CertsSettings
from dashboard.settings import Settings as DashboardSettings
from linkwise.runtime.process.settings import Declaration, ProcessSettings
from scorer.settings import Settings as ScorerSettings
from webhook.settings import Settings as WebhookSettings

CHART = ROOT / "charts/linkwise"
VALUES_SCHEMA = CHART / "values.schema.json"
RELEASE = "linkwise"
IMAGE = "--set=image.repository=linkwise"
"""The image that kustomizations replace."""
SETTINGS: Mapping[str, type[ProcessSettings]] = {
    "webhook": WebhookSettings,
    "certs": CertsSettings,
    "scorer": ScorerSettings,
    "agent": AgentSettings,
    "dashboard": DashboardSettings,
}
"""Of each component."""
OTHER_VALUES = {
    "LINKWISE_CLIENT_CA": "webhook.clientCAConfigMap",
    "LINKWISE_CERTIFICATES": "certs.mode",
    "LINKWISE_DASHBOARD": "dashboard.enabled",
    "LINKWISE_HOSTS": "dashboard.hosts",
}
"""Settings with a value of the chart that also changes other objects."""
OF_THE_POD = frozenset(
    f"LINKWISE_{name}" for name in ("NAMESPACE", "NODE_NAME", "POD_UID", "HOST_ROOT")
)
"""Settings that say how the chart runs a pod."""
ALL = (
    "--set=scheduler.enabled=true,scheduler.image.repository=kube-scheduler",
    "--set=monitoring.podMonitor=true,monitoring.alerts=true",
    "--set=certs.mode=cert-manager",
    "--set=policy.autoscaling.request=podCondition",
    "--set=policy.placement.templates=auto",
    "--set=policy.gangs.preemption.others=lowerPriority",
    "--set=dashboard.enabled=true",
    "--set=claims.refuseForcedDeletion=true",
)
"""Options that render each template of a manifest."""
_SERVED = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
"""An API that not every version which the chart is for serves."""
PLAIN = ("--set=agent.enabled=false",)
"""Options that render what is in manifests/base."""
_SOURCE = re.compile(r"^# Source: linkwise/templates/(.*)\n", re.MULTILINE)
_IDENTITY = re.compile(r"^kind: .*\nmetadata:\n(?:  name.*\n)+", re.MULTILINE)
OF_A_RELEASE = (
    *(f"app.kubernetes.io/{name}" for name in ("instance", "managed-by", "version")),
    "helm.sh/chart",
)
"""Labels that no manifest has."""
_NAMES = "|".join(map(re.escape, OF_A_RELEASE))
_LABELS_OF_A_RELEASE = re.compile(rf'^ +(?:{_NAMES}): ".*"\n|, (?:{_NAMES}): "[^"]*"', re.MULTILINE)
_HEAD = "# Rendered from charts/linkwise/templates/{}: change it there, then `make manifests`.\n"


class RenderError(Exception):
    """Helm's message about a chart or values that it refuses."""


def rendered(helm: str, *options: str, chart: Path = CHART) -> dict[str, list[str]]:
    """Return the texts of the objects of each template, by its path below the templates.

    Args:
        helm: The program.
        options: Of `helm template`; the image has a name without them.
        chart: Where it lies.

    Raises:
        RenderError: Helm refuses the values.
    """
    given = (f"--namespace={NAMESPACE}", IMAGE, _SERVED, *options)
    argv = (helm, "template", RELEASE, str(chart), *given)
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RenderError(ran.stderr)
    found: dict[str, list[str]] = {}
    for text in re.split(r"^---\n", ran.stdout, flags=re.MULTILINE):
        if source := _SOURCE.search(text):
            found.setdefault(source[1], []).append(_SOURCE.sub("", text).strip() + "\n")
    return found


def values_schema() -> str:
    """Return the schema of the chart's values, with those of the policy and of settings."""
    schema = json.loads(VALUES_SCHEMA.read_text(encoding="utf-8"))
    policy = json.loads((ROOT / "docs/schemas/Policy.json").read_text(encoding="utf-8"))
    types = policy.pop("$defs")
    # The template writes these.
    for name in ("apiVersion", "kind"):
        del policy["properties"][name]
    del policy["$schema"]
    settings = {f"{name}Settings": _settings_schema(of) for name, of in SETTINGS.items()}
    names = sorted({name for of in SETTINGS.values() for name, _ in of.declarations()})
    own = {"Resources": schema["$defs"]["Resources"], "Setting": {"enum": names}, **settings}
    schema["$defs"] = {**own, "Policy": policy, **types}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _settings_schema(of: type[ProcessSettings]) -> dict[str, object]:
    left = OTHER_VALUES.keys() | OF_THE_POD
    properties = {
        name: _setting_schema(each) for name, each in of.declarations() if name not in left
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _setting_schema(each: Declaration) -> dict[str, object]:
    if isinstance(each.default, str):
        return {"enum": list(each.choices)} if each.choices else {"type": "string"}
    least = "exclusiveMinimum" if each.positive else "minimum"
    kind = "integer" if isinstance(each.default, int) else "number"
    return {"type": kind, least: 0, "maximum": each.most}


def manifests(helm: str) -> dict[Path, str]:
    """Return the files that are rendered for kustomize, by their paths."""
    return dict(_manifests(helm))


def _manifests(helm: str) -> Iterator[tuple[Path, str]]:
    # The overlay of a scheduler patches the objects of the base.
    found = rendered(helm, *ALL) | rendered(helm, *PLAIN)
    for source, texts in found.items():
        if "/" in source:
            template = (CHART / "templates" / source).read_text(encoding="utf-8")
            # Helm orders objects by their kinds.
            texts.sort(key=lambda text: template.index(_IDENTITY.search(text)[0]))
            text = _LABELS_OF_A_RELEASE.sub("", "---\n".join(texts))
            yield ROOT / "manifests" / source, _HEAD.format(source) + text


def main(arguments: Sequence[str]) -> int:
    """Write the manifests, the schema and the README; return the exit code."""
    if arguments:
        print("usage: python -m controlplane.chart", file=sys.stderr)
        return 2
    VALUES_SCHEMA.write_text(values_schema(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    for path, text in manifests(chart_binaries(print)["helm"]).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
