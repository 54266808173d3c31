"""The page in a real headless Chromium: keyboard, narrow window, hostile texts, 5,000 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import MISSING, Browser, is_here
from draftproof.view.page import live_page, view_page

pytestmark = pytest.mark.skipif(not is_here(), reason=MISSING)
SHIFT, LEFT, RIGHT, HOME, END = "\ue008", "\ue012", "\ue014", "\ue011", "\ue010"
HOSTILE = [
    "</script><img src=x onerror=document.title='hacked'>",
    "<!--<script>",
    "&lt;b&gt;",
    "\u2028\u2029",
    "\u202eright\u200f\u2066",
    "\ud800",
    "\ufffd",
    "\0\x1b",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


def run(rounds: int, texts: list[str] = [" word"], name: str = "run") -> dict[str, Any]:  # noqa: B006
    """A run whose every round accepts two of three drafted tokens."""
    shown = [
        {
            "start": 3 * n,
            "tokens": [n, n, n],
            "texts": [texts[(n + i) % len(texts)] for i in range(3)],
            "origins": ["draft", "draft", "replacement"],
            "draft_tokens": [n, n, n],
            "draft_texts": [texts[n % len(texts)]] * 3,
            "draft_parents": [-1, 0, 1],
            "accepted": [0, 1],
            "reached": 3,
            "drafter": "suffix",
            "note": texts[n % len(texts)],
            "seconds": [0.001, 0.02, 0.001],
            "sample": 0,
            "best": [[[texts[n % len(texts)], 0.75], ["b", 0.25]]] * 3,
        }
        for n in range(rounds)
    ]
    named = {"name": name, "target": name, "method": name, "rule": "match"}
    return named | {"num_prompt_tokens": 0, "rounds": shown, "acceptance": []}


def shown(browser: Browser, folder: Path, page: str) -> None:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.open(path.as_uri())
    browser.run(
        "return new Promise(done => { const wait = () => runs.every(r => !r.filling) ? "
        "requestAnimationFrame(() => requestAnimationFrame(done)) : setTimeout(wait, 5); wait(); })"
    )


def test_keys_go_by_round_and_by_token_and_tell_the_best_tokens(
    browser: Browser, tmp_path: Path
) -> None:
    shown(browser, tmp_path, view_page([run(9), run(4)]))
    browser.press(RIGHT)
    browser.press(RIGHT)
    assert browser.run("return [runs[0].now, runs[1].now]") == [1, -1]
    browser.press(SHIFT, RIGHT)
    browser.press(SHIFT, LEFT)
    assert browser.run("return [runs[0].now, runs[0].token]") == [0, 2]
    assert "75%" in browser.run("return runs[0].detail.textContent")
    browser.press(END)
    assert browser.run("return runs[0].now") == 8
    browser.press(HOME)
    browser.press("\ue004")
    browser.press(RIGHT)
    assert browser.run("return [runs[0].now, runs[1].now]")[0] == 0


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_is_taken_for_html(browser: Browser, tmp_path: Path, text: str) -> None:
    shown(browser, tmp_path, view_page([run(3, [text], name=text)]))
    browser.press(SHIFT, RIGHT)
    tags = browser.run("return [...document.querySelectorAll('img, script')].map(e => e.tagName)")
    assert tags == ["SCRIPT", "SCRIPT"]
    assert browser.run("return document.title") == "draftproof view"
    assert browser.run("return runs[0].rounds.length") == 3 and not browser.complaints()


@pytest.mark.parametrize("page", ["one", "two", "live"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_needs_no_sideways_scroll(
    browser: Browser, tmp_path: Path, page: str, scheme: str
) -> None:
    pages = {"one": view_page([run(40, ["w" * 300])]), "two": view_page([run(5), run(5)])}
    browser.emulate(width=400, height=800, deviceScaleFactor=1, mobile=False)
    browser.command(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    try:
        shown(browser, tmp_path, pages.get(page) or live_page())
        assert browser.run("return document.documentElement.scrollWidth") <= 400
    finally:
        browser.emulate(width=1280, height=900, deviceScaleFactor=1, mobile=False)
    assert not browser.complaints()


def test_five_thousand_tokens_are_drawn_in_slices(browser: Browser, tmp_path: Path) -> None:
    """No clock is asked: the page gives the browser its turn back after every slice."""
    shown(browser, tmp_path, view_page([run(1700)]))
    assert browser.run("return runs[0].text.querySelectorAll('[data-token]').length") == 5100
    script = (
        "let most = 0; const one = Run.prototype.fill; Run.prototype.fill = function () { const "
        "before = this.rounds.length; one.call(this); most = Math.max(most, this.rounds.length - "
        "before); }; const made = new Run({...runs[0].data, rounds: runs[0].rounds}); return new "
        "Promise(r => { const wait = () => made.filling ? setTimeout(wait, 5) : r([most, "
        "made.rounds.length]); wait(); })"
    )
    assert browser.run(script) == [60, 1700]


def test_rounds_that_come_while_it_streams_are_appended(browser: Browser, tmp_path: Path) -> None:
    shown(browser, tmp_path, view_page([run(2)]))
    browser.run("runs[0].push(runs[0].rounds.slice()); runs[0].push([])")
    assert browser.run("return [runs[0].rounds.length, runs[0].text.children.length]") == [4, 4]
    assert "6 of 8" not in browser.run("return runs[0].table.textContent")


def test_the_live_page_takes_the_servers_parts(browser: Browser, tmp_path: Path) -> None:
    shown(browser, tmp_path, live_page())
    data = run(1)["rounds"]
    part = (
        "const run = new Run({name: 'n', target: '', method: 'live', num_prompt_tokens: 0, rounds: "
        "[]}); place.append(run.box); take(run, {model: 'm', choices: [{rounds: arguments[0] ?? "
        f"{__import__('json').dumps(data)}, "
        "logprobs: {content: [{top_logprobs: [{token: 'z', logprob: 0}]}]}}]}); "
        "return [run.rounds[0].best[0], run.data.target]"
    )
    assert browser.run(part) == [[["z", 1]], "m"]
