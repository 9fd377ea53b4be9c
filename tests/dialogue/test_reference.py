"""The world and each system, decision by decision, against lists and loops in float64.

Conversations are made with words of normal entries: with random signs, messages of small talk are
often exactly as like a question, and rounding would choose between them.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmem.dialogue import World, ask, generate
from jaxmem.dialogue.conversation import Conversation, Plan, build, draw_plan
from jaxmem.dialogue.questions import KINDS, TWO_HOP, Questions
from jaxmem.dialogue.reader import Items
from jaxmem.dialogue.systems import (
    PURPOSES,
    Ledger,
    Policy,
    Rates,
    System,
    full_context,
    mem0,
    mem0g,
    memgpt,
    rag,
    rag_messages,
)
from jaxmem.dialogue.systems.extraction import Candidates, Draws, draw, extract
from jaxmem.dialogue.systems.memgpt import run_queue
from jaxmem.dialogue.systems.store import Schedule, remember
from jaxmem.dialogue.words import Lexicon, embed, random_signs, unit
from jaxmem.reference import dialogue_reading as reading
from jaxmem.reference import dialogue_world as world_reference
from jaxmem.reference import dialogue_writing as writing

N = 64
WORLD = World(
    messages=80, jitter=10, static=3, changing=3, unstated=1, roles=2, most_changes=3,
    most_holders=3, mentions=2.0, dim=64,
)  # fmt: skip
RATES = Rates(
    recall=0.75, precision=0.7, change_as_known=0.2, change_as_new=0.2, delete_only=0.15,
    made_up_id=0.1, new_as_known=0.15, false_merge=0.2, duplicate=0.3, undated=0.2, misdated=0.4,
)  # fmt: skip
STOP_EARLY, PAGES = 0.3, 2
QUEUE = {"queue_tokens": 600, "evicted_tokens": 350, "working_entries": 4}


def rows(tree: Any) -> list[Any]:
    """A batch as numpy, one conversation after another."""
    host = jax.device_get(tree)
    return [jax.tree.map(lambda x, i=i: x[i], host) for i in range(N)]


@functools.cache
def conversations() -> tuple[Conversation, Questions, Plan]:
    """N conversations with their questions and draws; what words mean has half in common."""

    def one(key: Array) -> tuple[Conversation, Questions, Plan]:
        plan_key, word_key, wording_key, question_key = jax.random.split(key, 4)
        words = jax.random.normal(word_key, (WORLD.topics + WORLD.persons + 3, WORLD.dim))
        words = unit(words[1:] + words[0])
        lexicon = Lexicon(
            *jnp.split(words, [WORLD.topics, WORLD.topics + WORLD.persons]),
            jnp.asarray(WORLD.noise),
            jnp.asarray(WORLD.predicate_weight),
        )
        plan = draw_plan(plan_key, WORLD)
        conversation = build(plan, lexicon, wording_key, WORLD)
        return conversation, ask(question_key, conversation, WORLD), plan

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(4), N))


def run(traced: Callable[[Array, Conversation, Questions], Any]) -> list[Any]:
    """A function of (key, conversation, questions) on all of them."""
    keys = jax.random.split(jax.random.key(10), N)
    with jax.default_matmul_precision("highest"):
        return rows(jax.jit(jax.vmap(traced))(keys, *conversations()[:2]))


class Run(NamedTuple):
    """What a system did with one conversation, and the draws that tests want."""

    memory: Any
    written: Ledger
    said: np.ndarray
    spent: Ledger
    draws: Any


def run_system(
    system: System, draws: Callable[[Array, Array, Conversation, Questions], Any] | None = None
) -> list[Run]:
    """Write and read; draws: (write key, read key, conversation, questions) -> what was drawn."""

    def traced(key: Array, conversation: Conversation, questions: Questions) -> Run:
        write_key, read_key = jax.random.split(key)
        memory, written = system.write(write_key, conversation)
        said, spent = system.read(read_key, memory, questions)
        drawn = draws(write_key, read_key, conversation, questions) if draws else ()
        return Run(memory, written, said, spent, drawn)

    return run(traced)


def stories() -> list[tuple[Conversation, Questions]]:
    return rows(conversations()[:2])


COLUMNS = ("calls", "prefill_tokens", "generated_tokens")


def check_calls(found: Ledger, expected: Sequence[Mapping[str, Sequence[float]]]) -> None:
    """Rows of calls, prefill tokens and generated tokens by purpose."""
    nothing = (0.0, 0.0, 0.0)
    wanted = np.array([[row.get(purpose, nothing) for purpose in PURPOSES] for row in expected])
    here = np.stack([getattr(found, column) for column in COLUMNS], -1).reshape(wanted.shape)
    np.testing.assert_allclose(here, wanted, rtol=1e-5, err_msg=f"{PURPOSES} x {COLUMNS}")


def check_replies(said: np.ndarray, spent: Ledger, expected: Sequence[reading.Reply]) -> None:
    """Every answer with its row of the ledger."""
    assert said.tolist() == [reply.said for reply in expected]
    check_calls(spent, [reply.calls for reply in expected])
    for field in ("read_tokens", "fixed_tokens", "found"):
        wanted = [getattr(reply, field) for reply in expected]
        np.testing.assert_allclose(getattr(spent, field), wanted, rtol=1e-5, err_msg=field)


def check_facts(conversation: Conversation, story: world_reference.Story) -> None:
    """Statements, mentions and lengths."""
    facts, touches = conversation.facts, conversation.touches
    here = facts.key >= 0
    found = list(zip(facts.key[here], facts.time[here], facts.person[here], strict=True))
    assert found == [(f.key, f.time, f.person) for f in story.facts]
    assert (facts.time[~here] == world_reference.NEVER).all()
    assert here[: here.sum()].all()
    here = touches.key >= 0
    assert list(zip(touches.key[here], touches.time[here], strict=True)) == story.touches
    assert conversation.messages == len(story.tokens)
    tokens = conversation.tokens
    assert tokens[: len(story.tokens)].tolist() == story.tokens
    assert not tokens[len(story.tokens) :].any()
    assert conversation.overflow == story.overflow


def check_questions(
    questions: Questions, story: world_reference.Story, world: World
) -> Counter[str]:
    """Every question and its answer; how many of each kind there are."""
    seen: Counter[str] = Counter()
    expected = world_reference.ask(story.facts, world, questions.time)
    for field in ("kind", "asks", "key", "predicate", "changed", "mask"):
        assert getattr(questions, field).tolist() == [getattr(q, field) for q in expected]
    for q, question in enumerate(expected):
        kind = KINDS[question.kind]
        seen[kind] += question.mask
        seen[f"no {kind}"] += not question.mask
        if not question.mask:
            continue
        assert (questions.answer[q], questions.time[q]) == (question.answer, question.time)
        if kind == "as_of":
            versions = [i for i, f in enumerate(story.facts) if f.key == question.key]
            assert story.facts[versions[0]].time <= question.time < len(story.tokens)
            seen["as of an older value"] += question.answer != versions[-1]
    return seen


def test_facts_and_questions() -> None:
    seen: Counter[str] = Counter()
    for conversation, questions, plan in rows(conversations()):
        story = world_reference.tell(plan, WORLD)
        check_facts(conversation, story)
        assert not story.overflow
        seen += check_questions(questions, story, WORLD)
    assert all(seen[kind] for kind in (*KINDS, "as of an older value", "no previous")), seen


CROWDED = World(
    messages=14, jitter=4, static=2, changing=2, unstated=1, roles=2, most_changes=2,
    most_holders=2, mentions=0.8, length=2, fact_capacity=25, dim=33,
)  # fmt: skip


def test_crowded_world_with_its_wording() -> None:
    world = CROWDED

    def traced(key: Array) -> Any:
        world_key, question_key = jax.random.split(key)
        plan_key, _, wording_key = jax.random.split(world_key, 3)
        _, question_wording_key = jax.random.split(question_key)
        conversation = generate(world_key, world)
        questions = ask(question_key, conversation, world)
        signs = random_signs(wording_key, world.longest, world.dim)
        question_signs = random_signs(question_wording_key, questions.key.size, world.dim)
        return conversation, questions, draw_plan(plan_key, world), signs, question_signs

    with jax.default_matmul_precision("highest"):
        batch = jax.jit(jax.vmap(traced))(jax.random.split(jax.random.key(1), N))
    close = functools.partial(np.testing.assert_allclose, atol=1e-6, rtol=0)
    seen: Counter[str] = Counter()
    for conversation, questions, plan, signs, question_signs in rows(batch):
        story = world_reference.tell(plan, world)
        check_facts(conversation, story)
        seen += check_questions(questions, story, world)
        seen["overflow"] += story.overflow
        seen["no overflow"] += not story.overflow
        seen["messages did not suffice"] += len(story.tokens) > plan.messages
        stated = len(world_reference.statements(plan, world))
        seen["statements did not fit"] += len(story.facts) < stated
        busy = stated + int(plan.touches)
        seen["beyond the room"] += busy > world.longest

        lexicon = conversation.lexicon
        vectors = world_reference.wording(story, lexicon, signs, world.noise)
        close(conversation.embeddings[: len(vectors)], vectors)
        assert not conversation.embeddings[len(vectors) :].any()
        for q, question in enumerate(world_reference.ask(story.facts, world, questions.time)):
            words = world_reference.question_words(question, world)
            meant = world_reference.meaning(words, lexicon)
            wanted = world_reference.unit(meant + world.noise * question_signs[q])
            close(questions.embeddings[q], wanted)
    cases = ("overflow", "no overflow", "statements did not fit", "messages did not suffice")
    assert all(seen[case] for case in (*KINDS, *cases, "beyond the room")), seen


def test_full_context() -> None:
    windows = (128_000, 1_500)

    def traced(key: Array, conversation: Conversation, questions: Questions) -> Any:
        def one(window: Array) -> Any:
            return full_context(window, alpha=1.0).read(key, conversation, questions)

        shape = (questions.key.size, conversation.facts.key.size)
        return jax.vmap(one)(jnp.array(windows)), jax.random.uniform(key, shape)

    wrong = 0
    for (batch, draws), (conversation, questions) in zip(run(traced), stories(), strict=True):
        for i, window in enumerate(windows):
            said, spent = jax.tree.map(lambda x, i=i: x[i], batch)
            expected = reading.full_context(conversation, questions, window, 1.0, draws)
            check_replies(said, spent, expected)
            wrong += (said != questions.answer)[questions.mask].sum()
    assert wrong > 0


def test_rag() -> None:
    sizes = (128, 400)

    def traced(key: Array, conversation: Conversation, questions: Questions) -> Any:
        def one(chunk_tokens: Array) -> Any:
            system = rag(chunk_tokens, 3)
            return system.read(key, system.write(key, conversation)[0], questions)

        system = rag_messages(8)
        single = system.read(key, system.write(key, conversation)[0], questions)
        return jax.vmap(one)(jnp.array(sizes)), single

    wrong = 0
    for (batch, single), (conversation, questions) in zip(run(traced), stories(), strict=True):
        text = conversation.tokens[: conversation.messages]
        for i, size in enumerate(sizes):
            said, spent = jax.tree.map(lambda x, i=i: x[i], batch)
            expected = reading.rag(conversation, questions, writing.cut(text, size), 3)
            check_replies(said, spent, expected)
            wrong += (said != questions.answer)[questions.mask].sum()
        check_replies(*single, reading.rag(conversation, questions, writing.cut(text, 1), 8))
    assert wrong > 0


COUNT, SIMILAR, EVERY = 5, 3, 15
READING: dict[str, dict[str, Any]] = {
    "update": {},
    "add_only": {},
    "invalidate": {"hop": True, "history": 2},
    "bitemporal": {"hop": True, "history": 2, "rank_retired": True},
}
BRANCHES = {"known", "both", "delete", "lost", "replace", "missed", "merge", "new"}


@functools.cache
def run_store(policy: Policy, every: int | None) -> list[Run]:
    """mem0 or mem0g on all conversations."""
    make = mem0g if READING[policy] else mem0
    given = {"similar": SIMILAR, "consolidate_every": every, **READING[policy]}
    system = make(RATES, policy, COUNT, **given)

    def draws(key: Array, _: Array, conversation: Conversation, questions: Questions) -> Any:
        extract_key, file_key = jax.random.split(key)
        candidates = extract(extract_key, conversation, RATES)
        return candidates, draw(file_key, WORLD.facts, candidates.message.size - WORLD.facts, RATES)

    return run_system(system, draws)


def filed_by_hand(policy: Policy, every: int | None) -> list[writing.Filed]:
    """What the reference makes of the same draws."""
    return [
        writing.file_all(conversation, *found.draws, RATES, policy, SIMILAR, every)
        for found, (conversation, _) in zip(run_store(policy, every), stories(), strict=True)
    ]


@pytest.mark.parametrize(
    ("policy", "every"),
    [("update", None), ("invalidate", None), *((policy, EVERY) for policy in READING)],
)
def test_stores(policy: Policy, every: int | None) -> None:
    seen: Counter[str] = Counter()
    runs = zip(run_store(policy, every), filed_by_hand(policy, every), stories(), strict=True)
    for found, filed, (conversation, questions) in runs:
        candidates, _ = found.draws
        copies = Counter(filed.live)
        assert found.memory.copies.tolist() == [copies[c] for c in range(len(candidates.message))]
        assert np.flatnonzero(found.memory.retired).tolist() == sorted(filed.retired)
        check_calls(found.written, [filed.calls])
        expected = reading.from_store(
            candidates, filed.live, filed.retired, questions, COUNT, **READING[policy]
        )
        check_replies(found.said, found.spent, expected)
        seen += filed.branches
        seen["retired"] += len(filed.retired)
        seen["undated"] += (candidates.items.time[filed.live] < 0).sum()
        seen["wrong"] += (found.said != questions.answer)[questions.mask].sum()
        seen["made up"] += sum(c >= len(conversation.facts.key) for c in filed.live)
    wanted = {"undated", "wrong", "made up", "doubled"}
    if policy != "add_only":
        wanted |= BRANCHES | {"same key beyond the similar ones"}
    if policy in ("invalidate", "bitemporal"):
        wanted |= {"retired"}
    if policy == "bitemporal":
        wanted |= {"expired", "unknown time", "same time"}
    if every:
        wanted |= {"added later", "outdated"}
        if policy != "add_only":
            wanted |= {"copy cleared", "stale cleared"}
    assert all(seen[branch] for branch in wanted), wanted - set(+seen)


@functools.cache
def run_memgpt(every: int | None) -> list[Run]:
    """MemGPT on all conversations."""
    system = memgpt(RATES, **QUEUE, pages=PAGES, stop_early=STOP_EARLY, consolidate_every=every)

    def draws(
        write_key: Array, read_key: Array, conversation: Conversation, questions: Questions
    ) -> Any:
        stop_key, role_key, name_key = jax.random.split(read_key, 3)
        count, lexicon = questions.key.size, conversation.lexicon
        goes_on = jax.random.uniform(stop_key, (2, PAGES, count)) >= STOP_EARLY
        topic = jnp.clip(questions.key, 0, WORLD.topics - 1)
        by_role = embed(role_key, lexicon.topics, lexicon)[topic]
        hops = questions.hops
        predicates = (
            WORLD.predicate_weight * lexicon.predicates[questions.predicate[hops]]
        )  # [H, D]
        by_name = jax.vmap(lambda person: embed(name_key, unit(person + predicates), lexicon))(
            lexicon.persons
        )  # [P, H, D]
        by_name = jnp.zeros((len(by_name), count, WORLD.dim)).at[:, hops].set(by_name)
        return draw(write_key, WORLD.facts, 0, RATES), goes_on, by_role, by_name

    return run_system(system, draws)


def agents_by_hand(every: int | None) -> list[tuple[writing.Agent, list[reading.Reply], Counter]]:
    """What the reference makes of the same draws, and how often each thing happens at reading."""
    made = []
    for found, (conversation, questions) in zip(run_memgpt(every), stories(), strict=True):
        drawn, goes_on, by_role, by_name = found.draws
        agent = writing.run_agent(conversation, drawn, RATES, **QUEUE, consolidate_every=every)
        seen: Counter[str] = Counter()
        replies = []
        for q, question in enumerate(reading.rows(questions)):
            first = by_role[q] if question.asks == TWO_HOP else question.embedding
            reply = reading.search(
                conversation, agent.start, agent.working, agent.tokens, question, PAGES,
                goes_on[:, :, q], first, by_name[:, q], seen,
            )  # fmt: skip
            replies.append(reply)
        made.append((agent, replies, seen + agent.branches))
    return made


@pytest.mark.parametrize("every", [None, EVERY])
def test_memgpt(every: int | None) -> None:
    seen: Counter[str] = Counter()
    runs = zip(run_memgpt(every), agents_by_hand(every), stories(), strict=True)
    for found, (agent, replies, branches), (_, questions) in runs:
        assert found.memory.start == agent.start
        assert found.memory.tokens == agent.tokens
        assert np.flatnonzero(found.memory.working).tolist() == sorted(agent.working)
        check_calls(found.written, [agent.calls])
        check_replies(found.said, found.spent, replies)
        seen += branches
        seen["hops"] += (questions.asks == TWO_HOP).sum()
        seen["wrong"] += (found.said != questions.answer)[questions.mask].sum()
    wanted = (BRANCHES - {"merge"}) | {"made room", "skipped", "flushed", "wrong", "hops"}
    wanted |= {"page turned", "searched by name", "no page left to search by name", "gave up"}
    wanted |= {"outdated"} if every else set()
    assert all(seen[branch] for branch in wanted), wanted - set(+seen)


def test_a_message_longer_than_the_queue_stays_alone() -> None:
    for tokens in ([20, 50, 20, 20], [50], [50, 50, 50], [5, 5, 90, 5, 5, 90]):
        queue = jax.device_get(run_queue(jnp.asarray(tokens), 30, 10))
        start = 0
        for arrival in range(len(tokens)):
            while start < arrival and sum(tokens[start : arrival + 1]) > 30:
                gone = 0
                while start < arrival and gone < 10:
                    gone += tokens[start]
                    start += 1
        assert queue.start == start, tokens
        assert sum(tokens[: queue.start]) == queue.flushed_tokens, tokens


@pytest.mark.parametrize(
    ("stamps", "u", "valid", "retired"),
    [
        ([2, 5, 9], [0.9, 0.9, 0.9], [2], [0, 1]),  # in order
        ([5, 2], [0.9, 0.9], [0], [1]),  # out of order: the new one expires itself
        ([5, 5], [0.9, 0.9], [0, 1], []),  # equal times
        ([-1, 5, 9], [0.9, 0.9, 0.9], [0, 2], [1]),  # an unknown time keeps, and hides no other
        ([2, 9, 5], [0.9, 0.05, 0.9], [1], [0, 2]),  # 9 was kept beside 2; 5 meets both
    ],
)
def test_graphitis_rule(
    stamps: list[int], u: list[float], valid: list[int], retired: list[int]
) -> None:
    size = len(stamps)
    slots, none = jnp.arange(size), jnp.full(size, -1)
    items = Items(jnp.zeros(size, int), jnp.asarray(stamps), slots, none)
    vectors = jnp.eye(4)[:1].repeat(size, 0)
    candidates = Candidates(items, slots, jnp.ones(size, bool), vectors, jnp.full(size, 20.0))
    draws = Draws(jnp.ones((2, size), bool), jnp.asarray([u, u]), jnp.zeros(size, bool))
    schedule = Schedule(slots, jnp.zeros(size, bool), slots)
    rates = Rates(recall=1.0, change_as_known=0.0, change_as_new=0.1)
    store, _ = remember(candidates, draws, rates, "bitemporal", schedule)
    assert np.flatnonzero(store.copies).tolist() == valid
    assert np.flatnonzero(store.retired).tolist() == retired
