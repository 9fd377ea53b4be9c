"""Working context: named blocks of text of a fixed size that only functions write."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from jaxmem.agents.messages import clean
from jaxmem.common import check_size

LIMIT = 2_000
"""Characters of a block, as in MemGPT of October 2023."""


class WorkingContext(NamedTuple):
    """What the model always sees and can change.

    Every change makes a new one, so that a failed call changes nothing.

    blocks: texts by label, in order.
    limit: characters that each may have.
    """

    blocks: Mapping[str, str]
    limit: int = LIMIT

    def append(self, label: str, text: str) -> "WorkingContext":
        """Add a line to a block.

        Args:
          label: of the block.
          text: to add.

        Returns:
          The changed context.

        Raises:
          ValueError: if there is no such block, or it would be too long.
        """
        before = self._block(label)
        return self._with(label, f"{before}\n{text}" if before else text)

    def replace(self, label: str, old: str, new: str) -> "WorkingContext":
        """Put another text in place of one that is there, the first time that it occurs.

        Args:
          label: of the block.
          old: exactly as it is there.
          new: instead; "" takes it out, with its line if nothing else is on it.

        Returns:
          The changed context.

        Raises:
          ValueError: if there is no such block or text, or it would be too long.
        """
        before = self._block(label)
        if not old or old not in before:
            raise ValueError(
                f"no match for old_content in {label!r}: give text exactly as it stands there"
            )
        start = before.index(old)
        end = start + len(old)
        whole_line = before[:start][-1:] in ("", "\n") and before[end:][:1] in ("", "\n")
        if not new and whole_line:
            start, end = (start, end + 1) if end < len(before) else (max(0, start - 1), end)
        return self._with(label, before[:start] + new + before[end:])

    def insert(self, label: str, text: str, line: int = -1) -> "WorkingContext":
        """Put lines into a block.

        Args:
          label: of the block.
          text: to put in.
          line: before which line, counted from 0; -1 for the end.

        Returns:
          The changed context.

        Raises:
          ValueError: if there is no such block or line, or it would be too long.
        """
        before = self._block(label)
        lines = before.split("\n") if before else []
        if not -1 <= line <= len(lines):
            raise ValueError(f"expected a line of -1 to {len(lines)} in {label!r}, got {line}")
        at = len(lines) if line == -1 else line
        return self._with(label, "\n".join([*lines[:at], text, *lines[at:]]))

    def rethink(self, label: str, text: str) -> "WorkingContext":
        """Write a block anew.

        Args:
          label: of the block.
          text: all of it.

        Returns:
          The changed context.

        Raises:
          ValueError: if there is no such block, or it would be too long.
        """
        self._block(label)
        return self._with(label, text)

    def show(self) -> str:
        """The blocks as the model sees them: what stands in them is text, whatever it looks like.

        Returns:
          Lines of all blocks, a heading before each. What changes with every edit, the count,
          stands last: a cache keeps what is in front of it.
        """
        parts = [
            f"[{label}]\n{text}\n[{len(text)} of {self.limit} characters]"
            for label, text in self.blocks.items()
        ]
        return "\n".join(parts)

    def changes(self, before: "WorkingContext") -> str:
        """What is different from an earlier context, for a model that sees only that one.

        Args:
          before: the earlier one.

        Returns:
          The lines that are new and those that are gone, a block after the other.
        """
        parts = []
        for label, text in self.blocks.items():
            old, new = (Counter(some.split("\n")) for some in (before.blocks[label], text))
            gone = [f"- {line}" for line in (old - new).elements()]
            added = [f"+ {line}" for line in (new - old).elements()]
            if added or gone:
                parts.append("\n".join([f"[{label}, changed]", *gone, *added]))
        return "\n".join(parts)

    def _block(self, label: str) -> str:
        if label not in self.blocks:
            raise ValueError(f"expected a block of {', '.join(self.blocks)}, got {label!r:.80}")
        return self.blocks[label]

    def _with(self, label: str, text: str) -> "WorkingContext":
        if len(text) > self.limit:
            raise ValueError(
                f"edit failed: exceeds the limit of {self.limit} characters of {label!r} "
                f"(requested {len(text)}): shorten it, or put details into archival memory"
            )
        return self._replace(blocks={**self.blocks, label: text})


def first_context(blocks: Mapping[str, str], limit: int) -> WorkingContext:
    """The working context of a new agent.

    Args:
      blocks: texts by label.
      limit: characters that each may have.

    Returns:
      The context.

    Raises:
      ValueError: if there is no block, a label is no plain text, or one is too long.
    """
    check_size("block_limit", limit)
    found = WorkingContext(dict.fromkeys(blocks, ""), limit)
    for label, text in blocks.items():
        if not isinstance(label, str) or not label.isprintable() or not isinstance(text, str):
            raise ValueError(f"expected blocks of texts by label, got {label!r:.80}")
        found = found.rethink(label, clean(text))
    if not blocks:
        raise ValueError("expected at least one block of working context, got none")
    return found
