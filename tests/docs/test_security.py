import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_claim_names_tests_and_not_files_and_each_is_there():
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)

    assert named
    assert len(named) == PAGE.count(".py")
    assert [one for one in named if f"def {one[1]}(" not in text_of(one[0])] == []


def text_of(path):
    return (ROOT / "tests" / path).read_text(encoding="utf-8")


def test_every_claim_names_its_proof():
    claims = re.findall(r"^\| ([A-Z][^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)

    assert claims
    assert [claim for claim, proof in claims if "::test_" not in proof] == []


def rows(heading):
    """Return the cells of each row of the table under a heading."""
    section = PAGE.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    lines = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [tuple(line.split(" | ")) for line in lines][1:]


def test_rights_of_accounts_are_those_of_the_manifests():
    expected = sorted(set(rights()))

    assert sorted(rows("What each account may do")) == expected, "\n".join(
        f"| {' | '.join(row)} |" for row in expected
    )


def rights():
    """Yield account, verbs, resources, scope and folder of each rule that an account has."""
    documents = [
        (path.parent.name, one)
        for path in (ROOT / "manifests").glob("*/*.yaml")
        for one in yaml.safe_load_all(path.read_text())
        if one
    ]
    documents += [(hook, one) for hook in ("uninstall", "test") for one in of_a_hook(hook)]
    roles = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")): one["rules"]
        for _, one in documents
        if one["kind"] in {"Role", "ClusterRole"}
    }
    for folder, binding in documents:
        if not binding["kind"].endswith("RoleBinding"):
            continue
        reference, namespace = binding["roleRef"], binding["metadata"].get("namespace")
        scope = f"`{namespace}`" if namespace else "cluster"
        key = (reference["kind"], reference["name"], namespace)
        for subject in binding.get("subjects", ()):
            account = f"`{subject['name']}`"
            if key not in roles:
                yield account, "all", f"of {key[0]} `{key[1]}`", scope, folder
            for rule in roles.get(key, ()):
                yield account, ", ".join(rule["verbs"]), objects(rule), scope, folder


def of_a_hook(name):
    """Yield the roles and bindings of a hook of Helm's, which no folder of manifests has."""
    chart = ROOT / "charts/linkwise"
    tested = yaml.safe_load((chart / "values.yaml").read_text())["test"]["namespace"]
    template = (chart / f"templates/{name}.yaml").read_text()
    template = template.replace("{{ .Values.test.namespace }}", tested)
    for text in template.split("\n---\n"):
        if re.search(r"^kind: (Cluster)?Role", text, re.MULTILINE):
            yield yaml.safe_load(re.sub(r"^.*{{.*\n", "", text, flags=re.MULTILINE))


def objects(rule):
    """Return the resources of a rule, with their group and names."""
    kinds = [
        f"`{resource}.{group}`" if group else f"`{resource}`"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    named = ", ".join(f"`{name}`" for name in rule.get("resourceNames", ()))
    return ", ".join(kinds) + (f" named {named}" if named else "")
