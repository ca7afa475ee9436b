# SPDX-License-Identifier: MIT
"""The page of ``cgpu web`` in a browser: wide and narrow, light and dark, with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from pycgpu.web.history import Host
from pycgpu.web.watch import Watch
from tests.host import web_hosts
from tests.host.web_hosts import HOSTILE, NAMES, served

READINGS = 60
SIZES = {"narrow": (375, 800), "wide": (1440, 900)}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """A host of two cards with six containers each, an hour old."""
    host = web_hosts.Host(tmp_path_factory.mktemp("full") / "host", 2)
    return host.watch(READINGS)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """A host without a card."""
    host = web_hosts.Host(tmp_path_factory.mktemp("empty") / "host", 0, ())
    return host.watch(READINGS)


@pytest.fixture(scope="module")
def several(full: Watch, empty: Watch) -> Watch:
    """Both, and one that does not answer."""
    made = Watch(("node-1", "node-2", "node-3"), full.every_s)
    silent = Host("node-3", full.every_s)
    silent.fail("node-3: Connection refused")
    made.hosts = [full.hosts[0], empty.hosts[0], silent]
    return made


@contextmanager
def opened(
    browser: Browser, watch: Watch, size: str = "wide", scheme: Any = "light", quiet: bool = True
) -> Iterator[Page]:
    """The page, drawn; if it is to be quiet, what the browser complains of fails the test."""
    width, height = SIZES[size]
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    with served(watch) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("body[data-ready]")
        yield page
        context.close()
    assert said == [] or not quiet


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["full", "empty", "several"])
def test_the_page_fits_and_says_what_there_is(
    browser: Browser,
    which: str,
    size: str,
    scheme: str,
    request: pytest.FixtureRequest,
    screenshots: Path,
) -> None:
    watch: Watch = request.getfixturevalue(which)
    with opened(browser, watch, size, scheme) as page:
        page.screenshot(path=screenshots / f"{which}-{size}-{scheme}.png", full_page=True)
        # Nothing is wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(int(one) for one in ground.strip("rgb()").split(",")) < 3 * 128
        assert dark == (scheme == "dark")
        assert page.locator("details.host").count() == len(watch.hosts)
        cards = sum(len(host.now()["cards"]) for host in watch.hosts)
        assert page.locator("article").count() == page.locator(".uplot").count() == cards
        assert page.locator("tbody tr").count() == cards * len(NAMES)
        if which != "full":
            assert "no card that cgpu shares" in page.inner_text("main")
        if which == "several":
            assert page.inner_text(".error:not([hidden])") == "node-3: Connection refused"


def test_what_is_parked_is_shown_with_its_size(browser: Browser, tmp_path: Path) -> None:
    host = web_hosts.Host(tmp_path / "host", 1, ("server", "train"), parked=("train",))
    with opened(browser, host.watch(), "narrow") as page:
        cells = page.locator('td[data-label="Memory / limit GiB"]').all_inner_texts()
        assert [" ".join(text.split()) for text in cells] == [
            "3.0 / 8.0",
            "6.0 / 12 parked, waits for room",
        ]
        assert "Parked on the host GiB" in page.inner_text("article dl")


def test_a_hostile_name_is_shown_and_does_nothing(browser: Browser, full: Watch) -> None:
    with opened(browser, full) as page:
        names = page.locator("td.name").all_inner_texts()
        assert names.count(HOSTILE) == 2
        assert HOSTILE in page.inner_text(".events")
        assert page.evaluate("window.hostile") is None
        assert page.locator("main img, main script").count() == 0


def test_what_an_injected_script_would_need_is_refused(browser: Browser, full: Watch) -> None:
    """If a name came in as markup after all: the policy lets it run nothing, and ask nobody."""
    with opened(browser, full, quiet=False) as page:
        blocked = page.evaluate(
            """async () => {
              const refused = [];
              document.addEventListener("securitypolicyviolation",
                (event) => refused.push(event.effectiveDirective));
              const script = document.createElement("script");
              script.textContent = "window.hostile = 1";
              document.body.append(script);
              const image = document.createElement("div");
              image.innerHTML = '<img src="data:," onerror="window.hostile = 2">';
              document.body.append(image);
              await fetch("http://192.0.2.1/").catch(() => {});
              await new Promise((done) => setTimeout(done, 200));
              return refused;
            }"""
        )
        assert page.evaluate("window.hostile") is None
        assert {"script-src-elem", "script-src-attr", "connect-src"} <= set(blocked)


def test_shares_are_drawn_against_what_was_promised(browser: Browser, full: Watch) -> None:
    with opened(browser, full) as page:
        (first, _) = page.evaluate(
            "[...charts.values()].map((one) => one.plot.data.map((row) => row.length))"
        )
        # Times, and of each container what it used and what it was promised.
        assert first == [READINGS] * (1 + 2 * len(NAMES))
        box = page.locator(".chart").first.bounding_box()
        assert box and box["height"] > 100
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        readout = page.locator(".readout").first.inner_text()
        assert "team/train-0/main" in readout and "%" in readout
        # A container that is pointed at stands out among the others.
        page.locator("tbody tr").first.hover()
        alphas = page.evaluate("[...charts.values()][0].plot.series.slice(1).map((s) => s.alpha)")
        assert sorted(set(alphas)) == [0.15, 1] and alphas.count(1) == 2


def test_it_is_read_again_and_what_was_closed_stays_closed(
    browser: Browser, full: Watch, empty: Watch
) -> None:
    watch = Watch(("a", "b"), 1)
    watch.hosts = [full.hosts[0], empty.hosts[0]]
    with opened(browser, watch) as page:
        page.locator("summary").first.click()
        assert page.locator("details[open]").count() == 1
        with page.expect_response("**/hosts.json"):
            pass
        with page.expect_response("**/hosts.json"):
            pass
        assert page.locator("details[open]").count() == 1
        assert page.locator("#lost").is_hidden()
