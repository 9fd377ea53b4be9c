"""A playbook is the same in any order of its deltas, loses no mark, and can be kept small."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.sessions.playbook import (
    SECTIONS,
    Delta,
    Playbook,
    bullet_id,
    from_json,
    merge,
    render,
    to_json,
)
from jaxmem.sessions.refinement import (
    about_tokens,
    hashed_ngrams,
    refine_at,
    refined,
    within,
)

EMPTY = Playbook()
TEXTS = [f"check the {noun} before the call" for noun in ("token", "page", "sum", "date", "unit")]
SOME = [bullet_id(section, text) for section in ("code", "others") for text in TEXTS]
ids = st.sampled_from(SOME)
adds = st.lists(st.tuples(st.sampled_from(["code", "OTHERS", "no such"]), st.sampled_from(TEXTS)))
marks = st.dictionaries(ids, st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4)
deltas = st.lists(
    st.builds(
        Delta,
        step=st.integers(0, 4),
        adds=adds.map(tuple),
        counts=marks,
        removes=st.lists(ids, max_size=1).map(tuple),
        author=st.sampled_from(["", "a", "b"]),
        merges=st.lists(st.tuples(ids, ids), max_size=2).map(tuple),
    ),
    max_size=7,
)
quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def added(*texts: str, step: int = 0, section: str = "others") -> Delta:
    return Delta(step, tuple((section, text) for text in texts))


@quick
@given(deltas, st.randoms(use_true_random=False))
def test_order_and_grouping_do_not_matter(some: list[Delta], rng: random.Random) -> None:
    wanted = merge(EMPTY, *some)
    parts: list = [*some, *rng.sample(some, len(some) // 2)]  # some of them twice
    rng.shuffle(parts)
    while len(parts) > 1:  # in a random tree
        one, other = parts.pop(rng.randrange(len(parts))), parts.pop(rng.randrange(len(parts)))
        parts.append(
            merge(EMPTY, one, other) if rng.random() < 0.7 else merge(merge(EMPTY, other), one)
        )
    found = merge(EMPTY, *parts)
    assert found == wanted
    assert hash(found) == hash(wanted)
    assert found.bullets == wanted.bullets
    assert from_json(to_json(found)) == wanted
    assert merge(found, found) == found


@quick
@given(deltas)
def test_no_mark_is_lost_or_counted_twice(some: list[Delta]) -> None:
    kept = [Delta(d.step, d.adds, d.counts, (), d.author, d.merges) for d in some]
    everything = Delta(9, tuple(("code", t) for t in TEXTS) + tuple(("others", t) for t in TEXTS))
    book = merge(EMPTY, *kept, everything)
    unique = {delta.identity: delta for delta in kept}.values()
    for i, kind in enumerate(("helpful", "harmful")):
        wanted = sum(pair[i] for delta in unique for pair in delta.counts.values())
        assert sum(getattr(b, kind) for b in book.bullets) == wanted
        assert sum(getattr(b, kind) for b in refined(book, similarity=0.5).bullets) == wanted


@quick
@given(deltas, adds, marks)
def test_appended_text_only_grows(some: list[Delta], more: list, counts: dict) -> None:
    book = merge(EMPTY, *some)
    newer = merge(book, Delta(9, tuple(more), counts))
    assert render(newer).startswith(render(book))
    assert len(newer.bullets) >= len(book.bullets)


def test_equal_deltas_are_one_unless_their_authors_differ() -> None:
    book = merge(EMPTY, added("a"))
    (bullet,) = book.bullets
    mark = Delta(1, counts={bullet.id: (1, 0)})
    again = Delta(1, counts={bullet.id: (1, 0)})
    other = Delta(1, counts={bullet.id: (1, 0)}, author="b")
    assert merge(book, mark, again).bullets[0].helpful == 1
    assert merge(book, mark, other).bullets[0].helpful == 2
    assert merge(merge(book, mark), again) == merge(book, mark)


def test_marks_and_removals_may_come_before_their_bullet() -> None:
    one = bullet_id("code", "x")
    early = merge(
        EMPTY, Delta(1, counts={one: (2, 1)}), Delta(1, removes=(bullet_id("code", "y"),))
    )
    assert early.bullets == ()
    later = merge(early, Delta(0, (("code", "x"), ("code", "y"))))
    assert [(b.text, b.helpful, b.harmful) for b in later.bullets] == [("x", 2, 1)]
    assert merge(later, added("y", section="code", step=5)) == later  # gone for good


def test_what_was_merged_is_one_and_goes_as_one() -> None:
    a, b, c = (bullet_id("others", text) for text in "abc")
    book = merge(EMPTY, added("a"), added("b", step=1), added("c", step=2))
    marks = Delta(3, counts={a: (1, 0), b: (0, 2), c: (4, 0)})
    chain = Delta(3, merges=((c, b), (a, b)))
    (only,) = merge(book, marks, chain).bullets
    assert (only.text, only.helpful, only.harmful) == ("a", 5, 2)
    assert merge(book, chain, Delta(4, removes=(c,))).bullets == ()
    assert merge(book, Delta(4, merges=((a, b), (b, a)))).bullets[0].text == "a"  # a circle


@pytest.mark.parametrize(
    ("section", "slug"),
    [
        ("STRATEGIES & INSIGHTS", "strategies"),
        ("problem_solving_heuristics", "heuristics"),
        ("Problem-Solving Heuristics", "heuristics"),
        ("code", "code"),
        ("meta", "others"),
    ],
)
def test_sections_by_any_spelling(section: str, slug: str) -> None:
    (bullet,) = merge(EMPTY, Delta(0, ((section, "x"),))).bullets
    assert bullet.section == slug
    assert bullet.id.startswith(f"{slug}-")
    assert bullet.id == bullet_id(slug, " x\n")


def test_rendering() -> None:
    one = bullet_id("others", "use\nlines")
    book = merge(EMPTY, added("use\nlines"), added("pages", step=1, section="code"))
    book = merge(book, Delta(2, counts={one: (5, 1)}))
    two = book.bullets[1].id
    assert render(book) == f"[{one}] :: use\n  lines\n[{two}] :: pages"
    front = render(book, "sections", "front")
    assert front.startswith("## STRATEGIES & INSIGHTS\n\n## FORMULAS & CALCULATIONS\n\n## CODE")
    assert front.endswith(f"\n\n## OTHERS\n[{one}] helpful=5 harmful=1 :: use\n  lines")
    assert front.count("## ") == len(SECTIONS) == 7
    assert f"## CODE SNIPPETS & TEMPLATES\n[{two}] helpful=0 harmful=0 :: pages\n" in front
    assert render(book, counters="end").endswith(":: pages (helpful=0 harmful=0)")
    with pytest.raises(ValueError, match="unknown layout 'append' .did you mean 'appended'"):
        render(book, "append")


def test_a_duplicate_joins_the_nearest_and_counts_once() -> None:
    """The chain a ~ b ~ c, with b near both: the official greedy puts c into two groups."""
    angle = {"a": 0.0, "b": 25.0, "c": 50.0, "d": 26.0}

    def embed(texts: list[str]) -> np.ndarray:
        turn = np.deg2rad([angle[text] for text in texts])
        return 3.0 * np.stack([np.cos(turn), np.sin(turn)], 1)  # of any length

    book = merge(EMPTY, *(added(text, step=i) for i, text in enumerate("acbd")))
    book = merge(book, Delta(4, counts={b.id: (1, 0) for b in book.bullets}))
    found = refined(book, embed, similarity=0.9)  # 25.84 degrees
    assert [(b.text, b.helpful) for b in found.bullets] == [("a", 2), ("c", 2)]  # b at a, d at c
    assert refined(found, embed) == found
    newer = refined(merge(found, added("b2", step=9)), lambda texts: np.eye(3)[: len(texts)])
    assert render(newer).startswith(render(found))
    for wrong in (lambda texts: np.zeros(3), lambda texts: np.full((4, 2), np.nan)):
        with pytest.raises(ValueError, match="embed must give"):
            refined(book, wrong)
    with pytest.raises(ValueError, match="similarity"):
        refined(book, embed, 1.5)


def test_the_default_embedder_sees_spelling_only() -> None:
    near, other, far, empty = hashed_ngrams(
        ["check the date before the call", "check the dates before a call", "sum all pages", "--"]
    )
    assert near @ near == pytest.approx(1)
    assert near @ other > 0.7
    assert abs(near @ far) < 0.2
    assert not empty.any()
    kept = refined(merge(EMPTY, added("Check the date!"), added("check the date", step=1))).bullets
    assert [b.text for b in kept] == ["Check the date!"]


def test_refining_lazily_and_dropping_what_harms() -> None:
    book = merge(EMPTY, added(*"abc"), added("a!", step=1))
    assert refine_at(book, max_bullets=4) is book
    assert len(refine_at(book, max_bullets=3).bullets) == 3
    assert refine_at(book, max_tokens=10_000) is book
    assert len(refine_at(book, max_tokens=10).bullets) == 3
    with pytest.raises(ValueError, match="max_tokens or max_bullets"):
        refine_at(book)
    bad = bullet_id("others", "b")
    marked = merge(book, Delta(2, counts={bad: (1, 3)}))
    assert len(refined(marked, margin=3).bullets) == 3
    assert bad not in {b.id for b in refined(marked, margin=2).bullets}
    with pytest.raises(ValueError, match="margin"):
        refined(marked, margin=0)


def test_a_budget_is_enforced() -> None:
    book = merge(EMPTY, *(added(text, step=i) for i, text in enumerate("abcdef")))
    of = {b.text: b.id for b in book.bullets}
    book = merge(book, Delta(7, counts={of["a"]: (3, 0), of["c"]: (0, 1), of["e"]: (1, 0)}))
    line = about_tokens(render(merge(EMPTY, added("a"))) + "\n")
    orders = [[b.text for b in within(book, budget).bullets] for budget in range(7 * line)]
    assert orders[0] == []
    assert orders[-1] == list("abcdef")
    shrinking = [list("abcdef"), list("abdef"), list("adef"), list("aef"), list("ae"), ["a"], []]
    assert [o for o, last in zip(orders, [None, *orders]) if o != last] == shrinking[::-1]
    for budget in (line, 3 * line, 5 * line):
        assert about_tokens(render(within(book, budget))) <= budget
    assert within(book, 10_000) is book
    with pytest.raises(ValueError, match="budget_tokens must hold an empty playbook"):
        within(book, 3, layout="sections")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("playbook"), "version 1"),
        (lambda d: d.pop("counts"), "expected the fields"),
        (lambda d: d.update(more=1), "expected the fields"),
        (lambda d: d.update(added={}), "added: expected a list"),
        (lambda d: d["added"][0].pop(), "added: expected"),
        (lambda d: d["added"][0].__setitem__(0, -1), "added: expected"),
        (lambda d: d["added"][0].__setitem__(0, True), "added: expected"),
        (lambda d: d["added"][0].__setitem__(3, "other"), "is not that of its section and text"),
        (lambda d: d["added"].append([7, *d["added"][0][1:]]), "each id once"),
        (lambda d: d["counts"].append([*d["counts"][0][:2], 7, 7]), "each id once a delta"),
        (lambda d: d.update(removed=[1]), "removed: expected"),
    ],
    ids=range(11),
)
def test_malformed_json_is_refused(change, said: str) -> None:  # type: ignore[no-untyped-def]
    content = json.loads(to_json(merge(EMPTY, added("a"), Delta(1, counts={"x": (1, 1)}))))
    change(content)
    with pytest.raises(ValueError, match=said) as caught:
        from_json(json.dumps(content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1", "[]", "7", '{"playbook": 2}'])
def test_what_is_no_playbook_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a playbook") as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"step": -1}, "step must be at least 0"),
        ({"adds": "ab"}, "adds must be pairs"),
        ({"adds": (("code",),)}, "adds must be pairs"),
        ({"adds": 3}, "adds must be pairs"),
        ({"adds": (("code", " "),)}, "must not be empty"),
        ({"adds": ((1, "x"),)}, "a section must be text"),
        ({"counts": {"a": (1, -1)}}, "marks of a must be at least 0"),
        ({"counts": {"a": 1}}, "counts must be pairs"),
        ({"counts": [("a", 1)]}, "counts must map"),
        ({"removes": "a"}, "removes must be ids"),
        ({"removes": (1,)}, "an id must be text"),
        ({"merges": (("a", ""),)}, "an id must be text"),
        ({"author": 3}, "author must be text"),
    ],
    ids=lambda x: x if isinstance(x, str) else "fields",
)
def test_malformed_deltas_are_refused(fields: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Delta(**{"step": 0, **fields})


def test_only_deltas_and_playbooks_merge() -> None:
    with pytest.raises(ValueError, match="expected a Delta or a Playbook"):
        merge(EMPTY, "x")  # type: ignore[arg-type]
