"""A real Chromium, driven over WebDriver. Blocks: for tests in plain functions."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@contextmanager
def chromium(profile: Path, *, script: bool = True) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own.

    Args:
        profile: an empty folder.
        script: whether pages may run scripts.
    """
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert browser, "the tests need Debian's chromium"
    assert driver, "the tests need Debian's chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    if not script:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    # The driver's path is given: left out, selenium would look for one on the network.
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    try:
        chrome.set_page_load_timeout(30)
        yield chrome
    finally:
        chrome.quit()


def show_as(chrome: webdriver.Chrome, *, width: int, scheme: Literal["light", "dark"] = "light") -> None:
    """Let pages be shown this wide, to a person who likes it light or dark."""
    size: dict[str, Any] = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


# For each element with text of its own: the text, its size, its colour, and what lies behind it.
TEXTS = """
const seen = [];
const solid = (node) => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/, 0\\)$|transparent/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].filter(c => c.nodeType === 3 && c.textContent.trim());
  const colour = getComputedStyle(node).color;
  if (own.length) seen.push({text: node.textContent.trim(), colour, behind: solid(node)});
}
return seen;
"""


def contrast(one: str, two: str) -> float:
    """How well two `rgb(...)` colours are told apart, 1 to 21 (WCAG 2)."""

    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)
