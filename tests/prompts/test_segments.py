"""Prompt text in segments: labels and kinds, and that nothing of the text is lost."""

from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.prompts import KINDS
from jaxmem.prompts.segments import MAX_SECTIONS, split, split_plain


def test_labels_name_memory_and_its_parts() -> None:
    letta = (
        "You are Sam.\n\n<memory_blocks>\nEngaged blocks:\n\n<human>\n<metadata>\n"
        "- chars_current=3\n</metadata>\n<value>\nBob\n</value>\n</human>\n</memory_blocks>\n\n"
        "<memory_metadata>\n- 12 previous messages\n</memory_metadata>\nBye"
    )
    assert [part[:2] for part in split(letta, "system")] == [
        ("system", "system"),
        ("memory: <memory_blocks>", "memory"),
        ("memory: <human> <metadata>", "memory"),
        ("memory: <human> <value>", "memory"),
        ("memory: <memory_metadata>", "memory"),
        ("system", "system"),
    ]
    memgpt = (
        "Memory editing:\nYou can.\nCore memory (limited size):\nSmall.\n\n"
        "### Memory [last modified: 2024-01-02]\n12 previous messages are in recall memory\n"
        "3 total memories you created\n\n<persona characters=3>\nSam\n</persona>\n"
    )
    assert [part[:2] for part in split(memgpt, "system")] == [
        ("system", "system"),
        ("memory: ### Memory", "memory"),
        ("memory: <persona>", "memory"),
    ]
    ace = (
        "Answer.\n\n**Playbook:**\n## STRATEGIES\n[str-1] helpful=1 harmful=0 :: x\n\n"
        "## OTHERS\ny\n\n**Reflection:**\nnone\n\n**Question:**\nWhat?"
    )
    assert [part[:2] for part in split(ace, "user")] == [("message user", "history")]  # short
    assert [part[:2] for part in split("Do so. " * 60 + "\n" + ace, "user")] == [
        ("message user", "history"),
        ("memory: ## STRATEGIES", "memory"),
        ("memory: ## OTHERS", "memory"),
        ("message user: Reflection", "history"),
        ("message user: Question", "history"),
    ]
    mem0 = "Relevant memories:\n- likes tea\n\nQuestion: x"
    assert split(mem0, "user") == [("retrieved: Relevant memories", "retrieved", mem0)]
    for text in (
        "This session is being continued from a previous conversation that ran out of context.",
        "The following is a summary of the previous 7 messages:\n x",
        "Summary of the conversation: x",
    ):
        assert split(text, "user") == [("summary", "summary", text)], text
    fenced = "Run:\n```bash\n# Memory\n<human>\n```\n## Tools\nnone"
    assert [part[:2] for part in split(fenced, "system")] == [
        ("system", "system"),
        ("system: ## Tools", "tools"),
    ]


def test_a_page_of_tags_is_cut_into_few() -> None:
    page = "<div>\nx\n</div>\n" * 5000
    assert len(split(page, "user")) == MAX_SECTIONS
    assert len(split("<a>\n" * 5000, "user")) <= MAX_SECTIONS
    unclosed = "".join(f"<a{i}>\nx\n" for i in range(5000))
    assert len(split(unclosed, "user")) <= MAX_SECTIONS


PIECES = [
    "## Memory\n",
    "# A [1]\n",
    "<human>\n",
    "</human>\n",
    "</human>",
    "<value>",
    "\n",
    "\n\n",
    " ",
    "```\n",
    "user: ",
    "<|im_start|>assistant\n",
    "[INST]",
    "12 previous messages in recall\n",
    "**Playbook:**\n",
    "Question: ",
    "Notes:\n",
    "text é ",
    "MEMORY [49% — 1,085/2,200 chars]\n",
    "[a-1] helpful=1 ",
    "\u2028",
    "\r\n",
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=60).map("".join),
    st.sampled_from(["system", "user", "assistant", "tool", "developer", "", "other"]),
)
def test_joined_segments_give_back_the_text(text: str, role: str) -> None:
    for parts in (split(text, role), split_plain(text)):
        assert "".join(part[2] for part in parts) == text
        assert all(part[1] in KINDS for part in parts)
        assert all(part[2] for part in parts) or not text


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
)
def test_plain_text_that_goes_on_is_cut_alike(text: str, more: str) -> None:
    before, after = split_plain(text), split_plain(text + more)
    for a, b in zip(before[:-2], after):
        assert a[2] == b[2]
