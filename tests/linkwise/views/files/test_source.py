import os
from pathlib import Path
from threading import Thread

import pytest

from linkwise.manifest.value import InputError
from linkwise.views.files import source
from linkwise.views.files.source import read_objects, read_text, write_text

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n"


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        pytest.param(
            "a: [1\n", "f:2: not YAML: did not find expected ',' or ']'", id="a syntax error"
        ),
        pytest.param("", "f:1: there is nothing in it.", id="an empty file"),
        pytest.param("# only a comment\n", "f:1: there is nothing in it.", id="only comments"),
        pytest.param("- 1\n", "f:1: this is no Kubernetes object.", id="a list"),
        pytest.param("hello", "f:1: this is no Kubernetes object.", id="a word"),
        pytest.param(
            "\nkind: Pod\n", "f:2: no Kubernetes object: apiVersion is missing", id="half"
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata:\nname: a\nspec:\ncontainers:\n- name: c\n",
            "f:3: metadata is empty, and name, which belongs into it, stands beside it: the "
            "indentation is lost. Paste the text again",
            id="no indentation",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\ncontainers:\n- name: c\n",
            "f:4: spec is empty, and containers, which belongs into it, stands beside it",
            id="no indentation of spec",
        ),
        pytest.param(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\nname: a\nspec:\ntemplate:\n"
            "metadata:\nlabels:\n",
            "f:7: the key 'metadata' stands already on line 3; is the indentation lost?",
            id="no indentation of a template",
        ),
        pytest.param(f"{POD}---\na: 1\n", "f:6: no Kubernetes object", id="a second document"),
        pytest.param("a: b\n".encode("utf-16"), "f:1: the text is UTF-16.", id="UTF-16"),
        pytest.param(b"a: b\nc: \xff\n", "f:2: this is no UTF-8 text.", id="binary"),
        pytest.param("a: \x00\n", "f:1: the character U+0000 is not allowed", id="a NUL"),
        pytest.param('{"a": 1}{"b": }', "f:1: not YAML", id="half a JSON stream"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- 7\n",
            "f:4: this is no Kubernetes",
            id="in a List",
        ),
    ],
)
def test_other_objects_are_an_error_with_line(linkwise, tmp_path, raw, complaint):
    (tmp_path / "f").write_bytes(raw if isinstance(raw, bytes) else raw.encode())

    code, out, err = linkwise("check", "f")

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "missing.yaml",
            "no such file or directory. Name a file that can be read, or - for a pipe.",
        ),
        (".", "is a directory. Add -R to read the manifests in it."),
    ],
)
def test_unopenable_file_is_named(linkwise, name, complaint):
    code, out, err = linkwise("check", name)

    assert (code, out) == (2, "")
    assert err == f"linkwise: {name}: {complaint}\n"


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(InputError, match="embedded null byte"):
        read_text("a\0b")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(257 * 1024 * 1024)

    with pytest.raises(InputError, match="more than 256 MiB"):
        read_text(str(huge))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device without an end")
@pytest.mark.parametrize("name", ["/dev/zero", "-"])
def test_an_endless_input_is_read_to_a_limit(monkeypatch, name):
    monkeypatch.setattr(source, "MAX_BYTES", 1 << 20)
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr("sys.stdin", endless)

        with pytest.raises(InputError, match="more than 1 MiB"):
            read_text(name)


def test_standard_input_is_read_for_a_dash(linkwise):
    assert linkwise("check", "-", stdin=POD).out.startswith("skipped Pod default/a <stdin>:1")


def test_a_byte_order_mark_is_passed_over(linkwise, write):
    write("f", f"\ufeff{POD}")

    assert linkwise("check", "f").code == 0


def sources(path):
    return [value.source.rpartition(":")[2] for value in read_objects(str(path))]


def test_documents_and_lists_are_read_one_by_one(write):
    one = write("one", f"{POD}---\n{POD}---\n")
    listed = write(
        "list",
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n"
        "- apiVersion: v1\n  kind: PodList\n  items:\n"
        "  - {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
    )

    assert sources(one) == ["1", "6"]
    assert sources(listed) == ["4", "8"]


def test_json_objects_may_follow_each_other(write):
    one = '{"apiVersion": "v1",\n "kind": "Pod"}'

    assert sources(write("f", f"\n{one}\n\n{one} {one}\n")) == ["2", "5", "6"]


def test_yaml_in_braces_is_yaml(write):
    assert sources(write("f", "{apiVersion: v1, kind: Pod}\n")) == ["1"]


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def read():
        received.append(pipe.read_text(encoding="utf-8"))

    reader = Thread(target=read, daemon=True)
    reader.start()

    write_text(str(pipe), "written")

    reader.join(60)
    assert received == ["written"]
    assert pipe.is_fifo()


def test_a_link_goes_on_naming_the_file_that_is_written(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before", encoding="utf-8")
    link.symlink_to(file)

    write_text(str(link), "after")

    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "after"
