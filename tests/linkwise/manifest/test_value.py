import pytest

from linkwise.manifest.lines import read_documents
from linkwise.manifest.value import InputError, Value, path_of

TEXT = """\
metadata:
  name: job
  labels:
    app: x
    empty: ""
spec:
  replicas: 2
  share: 1500m
  paused: false
  gone:
  items:
  - a
  - 7
"""


@pytest.fixture
def document():
    (one,) = read_documents(TEXT)
    return Value("job.yaml", one.value, one)


def test_a_value_knows_its_line(document):
    assert document.source == "job.yaml:1"
    assert document.need("spec").need("items").items()[1].source == "job.yaml:13"
    assert document.at("spec.items[0]").source == "job.yaml:12"


def test_a_field_that_is_not_written_has_the_line_of_its_parent(document):
    assert document.at("metadata.annotations[a/b]").source == "job.yaml:1"
    assert document.at("metadata.labels[a/b]").source == "job.yaml:3"


def test_null_value_counts_as_absent(document):
    assert document.need("spec").child("gone") is None


def test_values_are_read_as_their_kind(document):
    spec = document.need("spec")

    assert document.need("metadata").need("name").text() == "job"
    assert document.need("metadata").need("labels").texts() == {"app": "x", "empty": ""}
    assert spec.need("replicas").whole() == 2
    assert spec.need("paused").true() is False
    assert [item.plain for item in spec.listed("items")] == ["a", 7]
    assert spec.listed("others") == ()


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        pytest.param(
            lambda d: d.need("status"), "job.yaml:1: status is missing; add it.", id="missing"
        ),
        pytest.param(
            lambda d: d.need("metadata").need("name").mapping(),
            "job.yaml:2: metadata.name must be a map of keys and values.",
            id="no map",
        ),
        pytest.param(
            lambda d: d.need("spec").items(), "job.yaml:6: spec must be a list.", id="no list"
        ),
        pytest.param(
            lambda d: d.need("spec").need("replicas").text(),
            "job.yaml:7: spec.replicas must be text; write it in quotes.",
            id="a number for text",
        ),
        pytest.param(
            lambda d: d.need("spec").text(), "job.yaml:6: spec must be text.", id="a map for text"
        ),
        pytest.param(
            lambda d: d.need("spec").need("share").whole(),
            "job.yaml:8: spec.share must be a whole number of at least 0.",
            id="a fraction",
        ),
        pytest.param(
            lambda d: d.need("spec").need("replicas").whole(least=3),
            "job.yaml:7: spec.replicas must be a whole number of at least 3.",
            id="too small",
        ),
        pytest.param(
            lambda d: d.need("metadata").need("name").whole(),
            "job.yaml:2: metadata.name must be a whole number of at least 0.",
            id="no number",
        ),
        pytest.param(
            lambda d: d.need("spec").need("paused").whole(),
            "job.yaml:9: spec.paused must be a whole number of at least 0.",
            id="a truth for a number",
        ),
        pytest.param(
            lambda d: d.need("spec").need("replicas").true(),
            "job.yaml:7: spec.replicas must be true or false.",
            id="no truth",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_line(document, read, complaint):
    with pytest.raises(InputError) as refused:
        read(document)

    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("", ()),
        ("spec", ("spec",)),
        (
            "spec.containers[0].resources.limits[aliyun.com/gpu]",
            ("spec", "containers", 0, "resources", "limits", "aliyun.com/gpu"),
        ),
        ("[2].objectSelector", (2, "objectSelector")),
    ],
)
def test_a_path_is_read_from_its_words(words, path):
    assert path_of(words) == path
