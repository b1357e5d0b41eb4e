from pathlib import Path

import yaml

from linkwise.cluster import keys

FILE = Path(__file__).parents[2] / "manifests/preemption/access.yaml"


def test_the_right_to_nominate_pods_is_the_scorers_alone():
    role, binding = yaml.safe_load_all(FILE.read_text(encoding="utf-8"))

    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [(one["namespace"], one["name"]) for one in binding["subjects"]] == [
        (keys.POLICY_NAMESPACE, keys.SCORER)
    ]
