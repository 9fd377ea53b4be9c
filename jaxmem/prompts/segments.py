"""Prompt text split into labelled segments, and a guess at what each of them is."""

import re
from typing import NamedTuple

LONG_CHARS = 400  # a user message up to this length stays whole
MAX_SECTIONS = 256  # of one message: what is beyond stays in the last
MAX_PARAGRAPHS = 4096  # of one plain prompt
MAX_DEPTH = 4  # tags nested deeper open no section
TITLE = 7  # the level of a title line, below all headings

_LINE = re.compile(
    r"""^(?:
      [ \t]*(?P<fence>`{3,}|~{3,})
    | (?P<heading>\#{1,6})[ \t]+(?P<title>\S[^\n]*)
    | [ \t]*<(?P<open>[A-Za-z_][\w.:-]*)(?:[ \t][^<>\n]*)?>(?=(?P<rest>[^\n]*))
    | (?P<count>\d+[ ](?:previous[ ]messages|total[ ]memories)\b[^\n]*)
    | (?P<meter>[^\n\[]{1,80})\[\d+[ ]?%[^\n\]]*\bchars\][^\n]*
    | (?P<ask>(?:\*\*)?(?:(?:User|New)[ ](?i:question|query|task|request|message|input)
        | Question | Query | Task | Request | Message | Input | Answer)(?:\*\*)?:(?:\*\*)?)
    | (?P<name>(?:\*\*)?[A-Z][^\n:.]{1,80}:(?:\*\*)?)[ \t]*$
    )
    | </(?P<close>[A-Za-z_][\w.:-]*)>[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_BULLETS = re.compile(r"^[ \t]*(?:[-*] )?\[[\w.-]+\] helpful=\d+", re.MULTILINE)
# Words of instructions about a memory, which are no memory: "Memory editing", "Core memory
# (limited size)" of the MemGPT system text.
_ABOUT = re.compile(
    r"\b(instructions?|guidelines?|rules|policy|usage|how to|editing|management)\b"
    r"|\b(tools?|functions?|limited size|infinite size|conversation history)\b"
)
_SUMMARY = re.compile(r"\b(summar(y|ies|i[sz]ed)|compact(ed|ion)|condensed|recap)\b")
_MEMORY = re.compile(
    r"\b(memory|memories|playbook|cheat ?sheet|working context|user (profile|facts|preferences)"
    r"|memory\.md|claude\.md|skillbook|learned (facts|lessons)|lessons learned"
    r"|(your|my|agent|user|personal|saved|session|working) notes)\b|^notes$"
)
_MEMORY_TAG = re.compile(r"^(human|persona|user|profile|notes)$|\bmemor(y|ies)\b")
_RETRIEVED = re.compile(
    r"\b(retrieved|retrieval|search results?|documents?|passages|excerpts|snippets"
    r"|relevant (memories|context|facts|documents|information)|context (chunks?|documents?)"
    r"|knowledge base|retrieved knowledge)\b|^(knowledge|context|doc|sources)$"
)
_TOOLS = re.compile(
    r"^((available|your) )?(tools?|functions?)\b|\btool (list|definitions|schemas)\b"
)
_SUMMARY_HEAD = re.compile(
    r"being continued from a previous conversation"
    r"|\b(here|below|following|this) is (a|the) (\w+ )?summary\b"
    r"|^\W*(conversation |previous |running |rolling |context )*summary\b[^\n]{0,80}:"
    r"|\bprior messages\b[^\n]{0,80}\bhidden\b"
    r"|^\W*\[?(context|conversation) (was |has been )?(compacted|condensed|summari[sz]ed)",
    re.IGNORECASE,
)
_SYSTEM_TAGS = {"base_instructions"}  # what is inside speaks about memory, and is none
_CONTAINERS = {"memory_blocks", "core_memory", "memory", "memories"}
_NAMED_FIRST = ("memory", "summary", "retrieved")  # kinds that stand first in a label

# A newline first, so that the search skips from line to line.
_SPEAKER = re.compile(
    r"""\n(?i:
      (?P<word>system|user|assistant|human|ai|tool|developer)[ \t]*:(?=\s|\Z)
    | \#{2,3}[ ](?P<hash>human|user|assistant|system|instruction|input|response)[ \t]*:?[ \t]*$
    )""",
    re.MULTILINE | re.VERBOSE,
)
_SPECIAL = re.compile(
    r"""<\|im_start\|>(?P<chatml>\w+)
    | <\|start_header_id\|>(?P<llama>\w+)<\|end_header_id\|>
    | <\|(?P<pipe>system|user|assistant)\|>
    | <start_of_turn>(?P<gemma>\w+)
    | <｜(?P<deepseek>User|Assistant)｜>
    | (?P<inst>\[/?INST\])""",
    re.VERBOSE,
)
_SPECIAL_STARTS = ("<|", "<start_of_turn>", "<｜", "INST]")
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "instruction": "user",
    "input": "user",
    "response": "assistant",
    "[inst]": "user",
    "[/inst]": "assistant",
}

Part = tuple[str, str, str]  # label, kind, text


class _Open(NamedTuple):
    """A section that is open: a tag by name, or a heading by level."""

    tag: str
    level: int
    title: str
    kind: str | None
    bold: bool | None = None  # of a title line: how it is set


def split(text: str, role: str) -> list[Part]:
    """Split a message into segments: at headings, tags alone on a line, titles of memory.

    System prompts and user messages of more than `LONG_CHARS` characters are split, others stay
    whole. A label says what a segment is without numbers or dates, so that it stays the same
    from call to call: "system: ## Tools", "memory: <human>", "message user".

    Args:
      text: the message.
      role: who says it.

    Returns:
      (label, kind, text) of each segment, kinds being those of `jaxmem.prompts.KINDS`; the
      texts joined are `text`.
    """
    system = role in ("system", "developer")
    base = "system" if system else f"message {printable(role)}" if role else "message"
    if role in ("assistant", "tool", "function"):
        if role == "assistant" and _SUMMARY_HEAD.search(text, 0, LONG_CHARS):
            return [("summary", "summary", text)]
        return [(base, "history", text)]
    if _SUMMARY_HEAD.search(text, 0, LONG_CHARS) and not system:
        return [("summary", "summary", text)]
    parts = _sections(text, base, "system" if system else "history")
    if system or len(text) > LONG_CHARS:
        return parts
    label, kind, _ = parts[0]
    return [(label, kind, text)] if kind in _NAMED_FIRST else [(base, "history", text)]


def split_plain(text: str) -> list[Part]:
    """Split a whole prompt that is one text: at chat markers, else at sections and paragraphs.

    Markers are "user:" and the like at the start of a line and the special tokens of chat
    templates. Where a part has none, each paragraph is a segment. Every cut depends on the text
    before it only, so that a prompt which goes on where another ended is cut alike.

    Args:
      text: the prompt.

    Returns:
      (label, kind, text) of each segment; the texts joined are `text`.
    """
    parts: list[Part] = []
    start, role = 0, ""
    markers = list(_SPEAKER.finditer("\n" + text))  # which starts where the line does in `text`
    if any(token in text for token in _SPECIAL_STARTS):
        markers = sorted([*markers, *_SPECIAL.finditer(text)], key=lambda match: match.start())
    for match in markers:
        _add_plain(parts, text[start : match.start()], role)
        name = match[match.lastgroup or 0].lower()
        start, role = match.start(), _ROLES.get(name, name)
    _add_plain(parts, text[start:], role)
    if len(parts) > MAX_PARAGRAPHS:
        rest = "".join(part[2] for part in parts[MAX_PARAGRAPHS - 1 :])
        parts[MAX_PARAGRAPHS - 1 :] = [("text", "history", rest)]
    return _blanks_ahead(parts) or [("text", "history", "")]


def _blanks_ahead(parts: list[Part]) -> list[Part]:
    """Blanks between parts go to the one behind, so that a prompt which goes on keeps its parts."""
    moved, blank = [], ""
    for label, kind, text in parts:
        end = len(text.rstrip())
        if end:
            moved.append((label, kind, blank + text[:end]))
            blank = text[end:]
        else:
            blank += text
    if blank and moved:
        label, kind, text = moved[-1]
        moved[-1] = (label, kind, text + blank)
    elif blank:
        moved.append(("text", "history", blank))
    return moved


def _add_plain(parts: list[Part], text: str, role: str) -> None:
    if not text:
        return
    if role in ("assistant", "tool"):
        parts.append((f"message {role}", "history", text))
    elif role:
        system = role in ("system", "developer")
        base = "system" if system else f"message {role}"
        parts += _sections(text, base, "system" if system else "history")
    else:
        for label, kind, section in _sections(text, "text", "history"):
            start = 0
            for blank in _PARAGRAPH.finditer(section):
                parts.append((label, kind, section[start : blank.end()]))
                start = blank.end()
            if start < len(section):
                parts.append((label, kind, section[start:]))


def _sections(text: str, base: str, kind: str) -> list[Part]:
    """Cut at the lines that open or close a section; what is inside a code fence stays whole."""
    starts, labels = [0], [(base, kind)]
    opened: list[_Open] = []
    fence = ""
    body = 0  # where the last cut's own line ends: nothing but blanks before a cut joins the two
    after_close = counted = False
    last_close: dict[str, int] = {}
    for match in _LINE.finditer(text):
        if len(starts) >= MAX_SECTIONS:
            break
        if match["fence"]:
            mark = match["fence"]
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
            continue
        if fence:
            continue
        if match["close"]:
            end = _close(opened, match["close"], text, match.end())
            if end is None:
                continue
            if after_close and not text[starts[-1] : match.start()].strip():
                starts[-1], labels[-1] = end, _named(opened, base, kind)
            else:
                starts.append(end)
                labels.append(_named(opened, base, kind))
            body, after_close, counted = end, True, False
            continue
        joins = not text[body : match.start()].strip()
        if match["count"] and joins and opened:  # a line of the header before it
            body, counted = match.end(), True
            continue
        joins = joins and not counted
        section = _opener(match, opened, text, last_close)
        if section is None:
            continue
        if match["heading"] and joins and opened and opened[-1].level == TITLE:
            # right under a title: within it, and so are those of this level that follow
            opened[-1] = opened[-1]._replace(level=section.level - 1)
        if not section.tag:
            while opened and not opened[-1].tag and opened[-1].level >= section.level:
                opened.pop()
        opened.append(section)
        if joins:
            labels[-1] = _named(opened, base, kind)
        else:
            starts.append(match.start())
            labels.append(_named(opened, base, kind))
        body, after_close, counted = match.end(), False, bool(match["count"])
    parts = []
    for start, end, (label, what) in zip(starts, starts[1:] + [len(text)], labels):
        piece = text[start:end]
        if what != "memory" and "helpful=" in piece and _BULLETS.search(piece):
            what, label = "memory", "memory: " + label.removeprefix(f"{base}: ")
        if piece:
            parts.append((label, what, piece))
    return parts or [(base, kind, text)]


def _opener(
    match: re.Match[str], opened: list[_Open], text: str, last_close: dict[str, int]
) -> _Open | None:
    """The section that a line opens, or None."""
    if match["open"]:
        tag = match["open"]
        what = _guess(tag, tag=True)
        if match["rest"].strip() and what not in _NAMED_FIRST:
            return None  # text after it on the line: markup within a sentence
        if tag not in last_close:
            if len(last_close) >= MAX_SECTIONS:
                return None
            last_close[tag] = text.rfind(f"</{tag}>")
        if last_close[tag] < match.end():
            return _Open("", TITLE, f"<{tag}>", what)  # never closed: up to the next section
        if sum(bool(o.tag) for o in opened) >= MAX_DEPTH:
            return None
        return _Open(tag, 0, f"<{tag}>", "system" if tag in _SYSTEM_TAGS else what)
    if match["heading"]:
        title = match["title"]
        return _Open(
            "", len(match["heading"]), f"{match['heading']} {_stable(title)}", _guess(title)
        )
    if match["count"]:
        words = " ".join(match["count"].split()[1:3])
        return _Open("", TITLE, f"number of {words.replace('total ', '')}", "memory")
    if match["meter"]:
        return _Open("", TITLE, _stable(match["meter"]), _guess(match["meter"]) or "memory")
    line = match["ask"] or match["name"]
    bold = line.startswith("**")
    title = line.strip("*: ")
    what = None if match["ask"] else _guess(title)
    # The title after a title ends it, if it is set alike: as bold, or after a blank line.
    alike = bold or text[max(match.start() - 2, 0) : match.start()] == "\n\n"
    ended = None
    for i in range(len(opened) - 1, -1, -1):
        if opened[i].tag:
            break
        if opened[i].bold is bold and alike:
            ended = i
    if ended is None and what not in _NAMED_FIRST:
        return None
    del opened[len(opened) if ended is None else ended :]
    return _Open("", TITLE, _stable(title), what, bold)


def _close(opened: list[_Open], tag: str, text: str, end: int) -> int | None:
    """Close `tag` if it is open; where the next section starts: after the blank lines."""
    for i in range(len(opened) - 1, -1, -1):
        if opened[i].tag == tag:
            del opened[i:]
            blank = end
            while blank < len(text) and text[blank].isspace():
                blank += 1
            return blank if blank == len(text) else max(text.rfind("\n", end, blank) + 1, end)
    return None


def _named(opened: list[_Open], base: str, kind: str) -> tuple[str, str]:
    """Label and kind of a text inside the open sections."""
    locked = any(o.tag in _SYSTEM_TAGS for o in opened)
    what = "system" if locked else next((o.kind for o in opened[::-1] if o.kind), kind)
    if not opened:
        return base, kind
    titles = [opened[-1].title]
    if opened[-1].tag:
        tags = [o for o in opened if o.tag]
        tags = [o for o in tags if o.tag not in _CONTAINERS] or tags[-1:]
        titles = [o.title for o in tags[-2:]]
    first = what if what in _NAMED_FIRST else base
    return f"{first}: {' '.join(titles)}", what


def _guess(title: str, tag: bool = False) -> str | None:
    """The kind that a title speaks of, or None."""
    words = re.sub(r"[_\-\s]+", " ", title.strip("*#:<> ")).lower()
    if _ABOUT.search(words):
        return "tools" if _TOOLS.search(words) else "system"
    if _SUMMARY.search(words):
        return "summary"
    if _RETRIEVED.search(words):
        return "retrieved"
    if _MEMORY.search(words) or (tag and _MEMORY_TAG.search(words)):
        return "memory"
    return "tools" if _TOOLS.search(words) else None


def printable(name: str) -> str:
    """A name for a label: short, and without half a surrogate pair.

    Args:
      name: any text.

    Returns:
      Its first 40 characters.
    """
    return name[:40].encode("utf-8", "replace").decode()


def _stable(title: str) -> str:
    """A title without what changes: brackets, what follows a colon, numbers."""
    head = re.split(r"\s*[\[(:]", title.strip())[0].strip("*_#=- ") or title.strip()
    return printable(re.sub(r"\d+", "N", head)).strip()
