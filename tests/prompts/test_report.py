"""The doctor's report: what it shows, what it keeps to itself, and that a browser renders it."""

import base64
import hashlib
import importlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from jaxmem.prompts import Diagnosis, LogBuilder, PromptLog, Segment, diagnose
from jaxmem.prompts.report import PARTS, report, shown_names

strips = importlib.import_module("jaxmem.prompts.report_strips")
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u202e\x00\ud800"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "h1", "nav", "a", "button"),
    *("p", "b", "dl", "div", "dt", "dd", "small", "span", "i", "h2", "table", "thead", "tr", "th"),
    *("tbody", "td", "bdi", "q", "ul", "li", "noscript", "footer", "script"),
}


def session(
    label: str = "core memory",
    secret: str = "",
    calls: int = 24,
    sessions: int = 3,
    source: str = "/home/someone/log.jsonl",
) -> PromptLog:
    """Agents whose memory, before a growing history, is edited at every fourth call."""
    rng = np.random.default_rng(0)

    def text(tokens: int) -> bytes:
        return secret.encode() + bytes(rng.integers(97, 123, 4 * tokens, np.uint8))

    system = text(200)
    memory = [text(80) for _ in range(sessions)]
    history: list[list[Segment]] = [[] for _ in range(sessions)]
    builder = LogBuilder()
    for call in range(calls):
        who = call % sessions
        if call // sessions % 4 == 3:
            memory[who] = text(80)
        history[who].append(Segment(f"message {secret}", "history", text(50)))
        head = [Segment(f"head {secret}", "system", system), Segment(label, "memory", memory[who])]
        builder.call(
            head + history[who],
            session=f"{secret} {who}",
            time_s=float(call),
            model=secret,
            source=f"{source}:{call}",
        )
    return builder.build()


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(session())


class Page(HTMLParser):
    """Tags, attributes and the text between."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.inside.setdefault(self.tags[-1] if self.tags else "", []).append(data)

    @property
    def data(self) -> dict:
        return json.loads(self.inside["script"][0])


def test_numbers_are_those_of_the_diagnosis(found: Diagnosis) -> None:
    page = report(found, "A title", cache="blocks of 16 tokens")
    assert f"{100 * found.reuse.share:.1f} %" in page
    assert f"{100 * found.reused_share:.1f} %" in page
    assert f"{found.avoidable_tokens:,} tokens" in page
    assert "estimated, 4 bytes a token" in page
    assert "blocks of 16 tokens" in page
    assert "A title" in page
    finding = found.findings[0]
    assert (finding.kind, finding.remedies[0].saved_tokens > 0) == ("memory", True)
    for number in (finding.tokens, *(r.saved_tokens for r in finding.remedies)):
        assert f"{number:,}" in page
    assert finding.advice in page
    data = Page(page).data
    assert sorted(call[0] for call in data["calls"]) == list(range(1, found.log.calls + 1))
    for number, who, source, parts, how, cause, reference, place, runs in data["calls"]:
        call = number - 1
        assert parts == [getattr(found.reuse, part)[call] for part in PARTS]
        assert sum(parts) == sum(runs[1::2]) == found.log.prompt_tokens[call]
        assert [data["kinds"][kind] for kind in runs[::2]] == ["system", "memory", "history"]
        assert who == found.log.session[call] + 1
        assert source == f"log.jsonl:{call}"
        assert reference == found.reuse.reference[call] + 1
        assert (cause >= 0) == (found.reuse.cause[call] >= 0)
        if place >= 0:
            assert data["names"][cause] == "memory 1"
            assert data["how"][how] in page
    for n, finding in enumerate(found.findings):
        assert sum(call[7] == n for call in data["calls"]) == finding.calls


def test_sessions_that_lose_most_come_first_in_time_order(found: Diagnosis) -> None:
    data = Page(report(found, "t")).data
    lost = [session[4] for session in data["sessions"]]
    assert lost == sorted(lost, reverse=True)
    start = 0
    for number, calls, prompt, reused, _, shown in data["sessions"]:
        rows = data["calls"][start : start + shown]
        start += shown
        assert {row[1] for row in rows} == {number}
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        assert (calls, prompt) == (shown, sum(sum(row[3]) for row in rows))
        assert reused == sum(row[3][0] for row in rows)


def test_same_input_same_page(found: Diagnosis) -> None:
    again = diagnose(session())
    assert report(found, "t", [{"usd": 1.5}]) == report(again, "t", [{"usd": 1.5}])


def test_page_stands_alone(found: Diagnosis) -> None:
    page = report(found, "t", [{"usd": 1.0}], with_text=True)
    parsed = Page(page)
    assert "://" not in page
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|WebSocket|import\(", page)
    names = {name for name, _ in parsed.attributes}
    assert not names & {"src", "style", "srcset", "action"}
    assert all(value.startswith("#") for name, value in parsed.attributes if name == "href")
    policy = next(value for name, value in parsed.attributes if "default-src" in value)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_no_text_unless_asked() -> None:
    found = diagnose(session("zyzzyva label", "zyzzyva", source="/home/zyzzyva/log.jsonl"))
    assert "zyzzyva" not in report(found, "t")
    asked = report(found, "t", with_text=True)
    assert "zyzzyva label" in asked
    assert found.findings[0].new
    assert "/home/" not in asked


@pytest.mark.parametrize("with_text", [False, True], ids=["names", "text"])
def test_nothing_in_a_log_becomes_markup(with_text: bool) -> None:
    log = session(HOSTILE, source=HOSTILE)
    found = diagnose(log)
    hostile = found.findings[0]._replace(old=HOSTILE, new=HOSTILE)
    found = found._replace(findings=(hostile, *found.findings[1:]))
    page = report(found, HOSTILE, [{HOSTILE: HOSTILE}], with_text, cache=HOSTILE)
    page.encode()  # halves of pairs are gone
    assert "\x00" not in page
    parsed = Page(page)
    assert set(parsed.tags) <= TAGS
    assert parsed.tags.count("script") == 2
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert ("alert(1)" in parsed.data["names"][0]) == with_text
    assert page.count("\u202e") == 0  # not printable


def test_names_are_kinds_and_numbers() -> None:
    builder = LogBuilder()
    builder.call(
        [
            Segment("notes", "memory", b"a"),
            Segment("intro", "system", b"b"),
            Segment("facts", "memory", b"c"),
            Segment("notes", "history", b"d"),
            Segment("notes", "memory", b"e"),
        ]
    )
    log = builder.build()
    assert shown_names(log, True) == ["notes", "intro", "facts"]
    assert shown_names(log, False) == ["memory 1", "system 1", "memory 2"]


def test_what_does_not_fit_is_said(found: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report(found, "t")
    assert "Shown: the first" not in whole
    monkeypatch.setattr(strips, "_CALLS", 10)
    page = report(found, "t")
    assert "Shown: the first 10 of 24 calls" in page
    assert "2 of 3 sessions" in page
    data = Page(page).data
    assert [len(data["calls"]), [s[1::4] for s in data["sessions"]]] == [10, [[8, 8], [8, 2]]]
    monkeypatch.setattr(strips, "_RUNS", 9)  # three a call
    assert len(Page(report(found, "t")).data["calls"]) == 3


def test_prices_are_shown_as_they_come(found: Diagnosis) -> None:
    rows = [
        {"rule": "one", "tokens": 1234567, "usd": None, "notes": ("a", "b")},
        {"rule": "two", "tokens": np.int64(5), "usd": np.float64(12.345), "fits": True},
    ]
    page = report(found, "t", rows)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page[page.index('class="prices"') :])
    assert cells == ["one", "1,234,567", "", "a; b", "", "two", "5", "12.35", "", "yes"]
    assert 'class="prices"' not in report(found, "t")


@pytest.mark.parametrize("calls", [0, 1])
def test_logs_of_nothing(calls: int) -> None:
    page = report(diagnose(session(calls=calls)), "t")
    assert "Nothing: no call computes again" in page
    assert len(Page(page).data["calls"]) == calls


def test_runs_too_short_to_see_join_their_neighbours() -> None:
    builder = LogBuilder()
    kinds = ("system", "memory", "memory", "history", "memory", "task")
    sizes = (1, 2, 3, 60_000, 4, 5000)
    builder.call([Segment(k, k, f"{n}".encode(), n) for k, n in zip(kinds, sizes)])
    calls = Page(report(diagnose(builder.build()), "t")).data["calls"]
    assert sum(calls[0][-1][1::2]) == sum(sizes)
    assert len(calls[0][-1]) <= 2 * 4


def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or pytest.skip(f"no browser here, of {', '.join(BROWSERS)}")


def rendered(page: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return subprocess.run(
        [
            *(browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
            *("--window-size=1200,1600", "--virtual-time-budget=2000", *options, path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_browser_renders_it(tmp_path: Path) -> None:
    log = session(HOSTILE)
    found = diagnose(log)
    page = report(found, "t", [{"usd": 1.0}], with_text=True, cache=HOSTILE)
    done = rendered(page, tmp_path, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    assert done.stdout.count('role="img"') == log.calls
    assert done.stdout.count('class="strip break"') == int((found.reuse.broken > 0).sum())
    assert len(re.findall("<details", done.stdout)) == len(log.sessions)
    assert "<img" not in done.stdout
    assert "linear-gradient(90deg, var(--reused)" in done.stdout


def test_a_picture_of_it_is_not_blank(tmp_path: Path, found: Diagnosis) -> None:
    browser()
    image = pytest.importorskip("matplotlib.image")
    rendered(report(found, "t"), tmp_path, f"--screenshot={tmp_path / 'page.png'}")
    pixels = np.round(255 * image.imread(tmp_path / "page.png")[..., :3]).astype(int)
    for color in ((0x2B, 0x7B, 0xBA), (0xD2, 0x42, 0x0B)):  # reused and broken, in the light
        assert (np.abs(pixels - color).max(-1) < 8).sum() > 1000
