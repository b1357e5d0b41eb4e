import pytest

from linkwise.dashboard.guard import HEADERS, Address, refusal

ADDRESS = Address(8080, "secret")
HOST = {"Host": "127.0.0.1:8080"}


@pytest.mark.parametrize(
    "headers",
    [
        HOST,
        {"Host": "localhost:8080"},
        {**HOST, "Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
        {**HOST, "Sec-Fetch-Site": "none"},
    ],
    ids=["host", "localhost", "own-page", "typed"],
)
def test_the_own_page_is_answered(headers):
    assert refusal(ADDRESS, headers, is_page=False) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "evil.example:8080"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:8081"},
        {"Host": "127.0.0.1:8080.evil.example"},
        {**HOST, "Origin": "http://evil.example"},
        {**HOST, "Origin": "https://127.0.0.1:8080"},
        {**HOST, "Origin": "http://127.0.0.1:9090"},
        {**HOST, "Origin": "http://localhost:8080"},
        {**HOST, "Origin": "null"},
    ],
    ids=[
        "none", "rebound", "no-port", "other-port", "longer", "other-origin", "other-scheme",
        "other-program", "other-name", "sandbox",
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_page", [True, False], ids=["page", "part"])
def test_others_are_refused(headers, is_page):
    assert refusal(ADDRESS, headers, is_page=is_page)


@pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
def test_a_link_from_elsewhere_leads_to_the_page_alone(site):
    headers = {**HOST, "Sec-Fetch-Site": site}

    assert refusal(ADDRESS, headers, is_page=True) is None
    assert refusal(ADDRESS, headers, is_page=False)


def test_the_page_loads_nothing_from_elsewhere_and_parses_no_markup():
    policy = HEADERS["Content-Security-Policy"]

    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy
