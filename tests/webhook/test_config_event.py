import msgspec

from webhook.active_config import PROFILES
from webhook.config_event import ConfigMapMeta, refusal_event

ABOUT = ConfigMapMeta("acs-profile", "kube-system", "uid", "7")


def an_event(about=ABOUT, message="wrong", instance="a"):
    return refusal_event(PROFILES, about, message, now="2026-01-02T03:04:05Z", instance=instance)


def name(event):
    return event["metadata"]["name"]


def test_an_event_is_about_the_config_map_as_it_is_and_in_its_namespace():
    event = an_event()

    about = event["involvedObject"]
    assert event["metadata"]["namespace"] == about["namespace"] == "kube-system"
    assert about["resourceVersion"] == "7"


def test_replicas_make_one_event_of_one_change():
    changed = msgspec.structs.replace(ABOUT, resource_version="8")

    assert name(an_event(instance="a")) == name(an_event(instance="b"))
    assert name(an_event()) != name(an_event(changed))


def test_a_message_that_the_api_server_would_refuse_is_cut():
    assert len(an_event(message="x" * 2000)["message"]) == 1024
