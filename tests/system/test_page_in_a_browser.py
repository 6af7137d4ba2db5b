"""The person's page in a real Chromium: with and without script, by keyboard, narrow and dark (F10, R22)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

from peer.door.page import APPROVED_SECONDS, PENDING_SECONDS
from tests.support.browser import TEXTS, chromium, contrast, show_as
from tests.support.peers import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

HANG = 30
WHITE = "rgb(255, 255, 255)"
SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">"


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerProcess]:
    with PeerProcess(tmp_path_factory.mktemp("peer")) as peer:
        yield peer


@pytest.fixture(scope="module", params=["with script", "without script"])
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile"), script=request.param == "with script") as chrome:
        yield chrome


def test_script_runs_where_it_may_alone(browser: Chrome, request: pytest.FixtureRequest) -> None:
    """Without this the tests below would show nothing about a browser that runs none."""
    browser.get("data:text/html,<title>off</title><script>document.title = 'on'</script>")
    assert browser.title == ("off" if "without script" in request.node.name else "on")


def begin(peer: PeerProcess, **form: str) -> dict[str, Any]:
    with peer.client() as client:
        answer: dict[str, Any] = client.post("/oauth/device", data={"client_id": "best-mcp", **form}).json()
    return answer


def state(browser: Chrome) -> str | None:
    return browser.find_element(By.TAG_NAME, "body").get_attribute("data-state")


def heading(browser: Chrome) -> str:
    return str(browser.find_element(By.TAG_NAME, "h1").text)


def test_the_pending_page_shows_code_and_agent_and_is_not_taken_over(
    peer: PeerProcess, browser: Chrome
) -> None:
    begun = begin(peer, connection="lab", agent_label=SCRIPT)
    browser.get(begun["verification_uri_complete"])
    assert heading(browser) == "An agent asks to use this machine"
    assert browser.find_element(By.CLASS_NAME, "code").text == begun["user_code"]
    facts = browser.find_element(By.TAG_NAME, "dl").text
    for words in (SCRIPT, "lab", "best-mcp", "127.0.0.1 (this machine)", "a lasting key"):
        assert words in facts
    assert "taken over" not in browser.title
    assert not browser.find_elements(By.TAG_NAME, "img")
    commands = [each.text for each in browser.find_elements(By.TAG_NAME, "pre")]
    assert f"best-peer approve {begun['user_code']}" in commands
    assert browser.find_element(By.CSS_SELECTOR, "[aria-current=step]").text == "Asked"


def test_the_form_works_by_keyboard_alone(peer: PeerProcess, browser: Chrome) -> None:
    begun = begin(peer)
    browser.get(begun["verification_uri"])
    assert heading(browser) == "Enter the code"
    field = browser.switch_to.active_element
    assert field.get_attribute("name") == "user_code"  # ready to type
    field.send_keys("nobody has this one"[:16])
    field.send_keys(Keys.ENTER)
    left(browser, field)
    assert heading(browser) == "No sign-in waits under this code"
    field = browser.switch_to.active_element
    field.send_keys(begun["user_code"].lower().replace("-", " "))
    field.send_keys(Keys.TAB)
    button = browser.switch_to.active_element
    assert button.text == "Look it up"
    button.send_keys(Keys.SPACE)
    left(browser, button)
    assert state(browser) == "pending"
    assert browser.find_element(By.CLASS_NAME, "code").text == begun["user_code"]


def left(browser: Chrome, element: WebElement) -> None:
    """Wait until the page that an element was on has gone: a key press alone does not."""
    WebDriverWait(browser, HANG).until(staleness_of(element))


def test_it_follows_what_becomes_of_the_code_by_itself(peer: PeerProcess, browser: Chrome) -> None:
    with peer.client() as client:
        begun = begin(peer)
        browser.get(begun["verification_uri_complete"])
        assert refreshes(browser) == PENDING_SECONDS
        peer.approve(client, begun["user_code"])
        browser.refresh()
        approved = ("approved", "Approved", APPROVED_SECONDS)
        assert steady(browser, lambda: (state(browser), heading(browser), refreshes(browser))) == approved
        assert peer.poll(client, begun["device_code"]).status_code == 200
    gone = (StaleElementReferenceException,)
    WebDriverWait(browser, HANG, ignored_exceptions=gone).until(lambda b: state(b) == "used")
    assert heading(browser) == "Signed in"
    assert browser.find_element(By.CSS_SELECTOR, "[aria-current=step]").text == "Signed in"
    assert not browser.find_elements(By.CSS_SELECTOR, "meta[http-equiv=refresh]")


def steady(browser: Chrome, look: Callable[[], Any]) -> Any:
    """What is seen on a page that may load itself anew while it is looked at."""
    seen: list[Any] = []

    def once(_: Chrome) -> bool:
        seen[:] = [look()]
        return True

    WebDriverWait(browser, HANG, ignored_exceptions=(StaleElementReferenceException,)).until(once)
    return seen[0]


def refreshes(browser: Chrome) -> int:
    tag = browser.find_element(By.CSS_SELECTOR, "meta[http-equiv=refresh]")
    return int(tag.get_attribute("content") or 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read(peer: PeerProcess, browser: Chrome, scheme: Any) -> None:
    begun = begin(peer, connection="a" * 64, agent_label="An agent with a long name " * 6 + "x" * 90)
    complete, form = begun["verification_uri_complete"], begun["verification_uri"]
    for width in (320, 1000):
        show_as(browser, width=width, scheme=scheme)
        for url in (complete, form, f"{form}?user_code=BCDFGHJK"):
            browser.get(url)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, (url, wide)
            texts = browser.execute_script(TEXTS)
            assert len(texts) >= 4
            for each in texts:
                assert contrast(each["colour"], each["behind"]) >= 4.5, each
            behind = texts[0]["behind"]
            assert (contrast(behind, WHITE) > 10) is (scheme == "dark")


def test_the_page_asks_nobody_else_for_anything(peer: PeerProcess, browser: Chrome) -> None:
    begun = begin(peer)
    browser.get(begun["verification_uri_complete"])
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [url for url in fetched if not url.startswith("data:")] == []
