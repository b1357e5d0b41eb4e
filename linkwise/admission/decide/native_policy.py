"""Express profiles and the models of a policy as admission policies that an API server evaluates.

Source: Kubernetes documentation, "Mutating Admission Policy" and "Validating Admission Policy";
KEP-3962. CEL limits an expression to 100,000 characters, so lists are flat and sizes are checked.
"""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from linkwise.admission.patch.mutation import without_record
from linkwise.admission.read.work_limits import MAX_PARTS
from linkwise.cluster.finding import Code
from linkwise.cluster.keys import MODEL_SERIES, NAMESPACE_NAME, POLICY_NAMESPACE, PROFILE_NAMESPACE
from linkwise.cluster.objects.condition import Condition
from linkwise.cluster.objects.selector import REQUIRED_PATH
from linkwise.cluster.pointer import escape
from linkwise.policy.models import Catalogue
from linkwise.policy.selection import Profiles
from linkwise.policy.snapshot import PolicySnapshot

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

API_VERSION = "admissionregistration.k8s.io/v1"
EXCLUDED_NAMESPACES = (PROFILE_NAMESPACE, "kube-node-lease", POLICY_NAMESPACE)
"""Namespaces whose pods are not sent to the webhook."""
MAX_EXPRESSION = 100_000
"""Longest expression that CEL reads [characters]."""
_PROFILES, _MODELS = "linkwise-profiles", "linkwise-models"
_TABLES = ("labels", "annotations")


class Target(StrEnum):
    """A kind of native admission policy."""

    MAP = "map"
    """MutatingAdmissionPolicy: the profiles."""
    VAP = "vap"
    """ValidatingAdmissionPolicy: the names of GPU models."""


def expressible(path: str, targets: frozenset[Target]) -> bool:
    """Return whether the targets express a key of the policy.

    Args:
        path: Of the key, such as `catalogue.replace`.
        targets: The kinds of policies.
    """
    is_check = path == "strict" or path.startswith("catalogue.")
    return path == "profilesAll" or (is_check and Target.VAP in targets)


def refusals(policy: PolicySnapshot, targets: frozenset[Target]) -> Iterator[tuple[str, str]]:
    """Yield what the targets cannot express of a policy: the reason, and a fix."""
    if not policy.policy.profiles_all:
        yield (
            "profiles and checks apply only to pods that concern GPUs, which the webhook decides",
            "set profilesAll: true in a Policy of the same file",
        )
    if Target.VAP in targets:
        for model in policy.catalogue.models:
            if model.counts or model.drivers:
                yield (
                    f"drivers and numbers of GPUs of model {model.name} cannot be checked",
                    "set catalogue.replace: true and list models without them, "
                    "or leave vap out of --target",
                )
                break
    if Target.MAP not in targets and policy.profiles.selectors:
        yield "profiles change pods", "add map to --target"
    if targets == {Target.MAP} and not policy.profiles.selectors:
        yield "there are no profiles to export", "name a file with selectors"
    if Target.MAP in targets and _is_too_long(policy.profiles):
        yield (
            f"a profile needs an expression of more than {MAX_EXPRESSION:,} characters",
            "remove some selectors",
        )


def native_policies(policy: PolicySnapshot, targets: frozenset[Target]) -> list[Object]:
    """Return the policies and their bindings.

    Args:
        policy: A policy without `refusals`.
        targets: The kinds of policies.
    """
    objects: list[Object] = []
    if Target.MAP in targets and policy.profiles.selectors:
        objects += _mutating(policy.profiles)
    if Target.VAP in targets:
        objects += _validating(policy.catalogue, strict=policy.policy.strict)
    return objects


def _mutating(profiles: Profiles) -> list[Object]:
    variables = [
        {"name": f"matches{i}", "expression": _all_of(selector.namespace, selector.pod)}
        for i, selector in enumerate(profiles.selectors)
    ]
    # One mutation, since a second one would see the labels that the first one adds.
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(profiles)}}
    spec = {
        # As the webhook: a pod that cannot be changed is created as it is.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "variables": variables,
        "mutations": [mutation],
    }
    return _with_binding("MutatingAdmissionPolicy", _PROFILES, spec, {})


def _validating(catalogue: Catalogue, *, strict: bool) -> list[Object]:
    key, models = _text(MODEL_SERIES), _list(catalogue.names)
    required = f"object.{REQUIRED_PATH}".replace(".", ".?").replace(".?spec", ".spec")
    expression = (
        f"object.metadata.?labels[?{key}].optMap(m, m in variables.models).orValue(true) && "
        f"object.spec.?nodeSelector[?{key}].optMap(m, m in variables.models).orValue(true) && "
        # A macro takes quadratic time, and the webhook denies a pod with more parts, too.
        f"[{required}.?nodeSelectorTerms.orValue([])].all(all, all.size() <= {MAX_PARTS} && "
        f"all.all(t, [t.?matchExpressions.orValue([])].all(some, some.size() <= {MAX_PARTS} && "
        f"some.all(e, e.key != {key} || e.operator != 'In' || [e.?values.orValue([])].all(values, "
        f"values.size() <= {MAX_PARTS} && values.all(v, v in variables.models))))))"
    )
    message = (
        f"{Code.MODEL.value}: the pod names a GPU model that is not in the catalogue; "
        f"known are {catalogue.titles or 'none'}"
    )
    spec = {
        # A pod that exceeds the cost limit of CEL is too large for the webhook, too.
        "failurePolicy": "Fail",
        "variables": [{"name": "models", "expression": models}],
        "validations": [{"expression": expression, "reason": "Invalid", "message": message}],
    }
    actions = {"validationActions": ["Deny" if strict else "Warn"]}
    return _with_binding("ValidatingAdmissionPolicy", _MODELS, spec, actions)


def _with_binding(kind: str, name: str, spec: Object, binding: Object) -> list[Object]:
    pods = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
        "scope": "Namespaced",
    }
    namespaces = {
        "key": NAMESPACE_NAME,
        "operator": "NotIn",
        "values": list(EXCLUDED_NAMESPACES),
    }
    constraints = {
        "namespaceSelector": {"matchExpressions": [namespaces]},
        "resourceRules": [pods],
    }
    spec = {"matchConstraints": constraints, **spec}
    specs = {kind: spec, f"{kind}Binding": {"policyName": name, **binding}}
    return [
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, spec in specs.items()
    ]


def _patch(profiles: Profiles) -> str:
    """Return the expression of the JSON patch: each missing key gets its first matching value."""
    operations: list[str] = []
    for table in _TABLES:
        present = f"object.metadata.?{table}.orValue({{}})"
        added = [_added(table, present, *entry) for entry in _values(profiles, table).items()]
        if added:
            # The parent of a key must exist.
            empty = f'JSONPatch{{op: "add", path: "/metadata/{table}", value: {{}}}}'
            operations += [_if(f"{present}.size() == 0", f"optional.of({empty})"), *added]
    return f"[{', '.join(f'?{operation}' for operation in operations)}]"


def _is_too_long(profiles: Profiles) -> bool:
    conditions = (_all_of(selector.namespace, selector.pod) for selector in profiles.selectors)
    return any(len(text) > MAX_EXPRESSION for text in (_patch(profiles), *conditions))


def _values(profiles: Profiles, table: str) -> dict[str, list[tuple[int, str]]]:
    """Return the values of each key, each with the index of its selector."""
    values: dict[str, list[tuple[int, str]]] = {}
    for i, selector in enumerate(profiles.selectors):
        additions = selector.labels if table == "labels" else selector.annotations
        new = {addition.key: addition.value for addition in additions}
        # The webhook adds no record of an allocation.
        for key, value in (new if table == "labels" else without_record(new)).items():
            values.setdefault(key, []).append((i, value))
    return values


def _added(table: str, present: str, key: str, values: Iterable[tuple[int, str]]) -> str:
    wanted = (_if(f"variables.matches{i}", f"optional.of({_text(value)})") for i, value in values)
    first = f"[{', '.join(f'?{value}' for value in wanted)}][?0]"
    path = _text(f"/metadata/{table}/{escape(key)}")
    operation = f'JSONPatch{{op: "add", path: {path}, value: v}}'
    return _if(f"!({_text(key)} in {present})", f"{first}.optMap(v, {operation})")


def _if(condition: str, value: str) -> str:
    return f"({condition} ? {value} : optional.none())"


def _all_of(namespace: Iterable[Condition], pod: Iterable[Condition]) -> str:
    conditions = [
        _holds(condition, f"{what}.metadata.?labels")
        for what, some in (("object", pod), ("namespaceObject", namespace))
        for condition in some
    ]
    return " && ".join(conditions) or "true"


def _holds(condition: Condition, labels: str) -> str:
    value = f"{labels}[?{_text(condition.key)}]"
    if condition.operator == "Exists":
        return f"{value}.hasValue()"
    if condition.operator == "DoesNotExist":
        return f"!{value}.hasValue()"
    is_one = f"{value}.optMap(v, v in {_list(sorted(condition.values))}).orValue(false)"
    return is_one if condition.operator == "In" else f"!{is_one}"


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    """Return a literal of CEL, which has the escapes of JSON, except surrogates."""
    return json.dumps(value, ensure_ascii=False)
