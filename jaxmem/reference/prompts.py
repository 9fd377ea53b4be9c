"""The reuse of prompts, token by token: numpy twin of `jaxmem.prompts`."""

from collections.abc import Sequence

import numpy as np


def shared_tokens(
    streams: Sequence[np.ndarray],
    session: np.ndarray,
    time_s: np.ndarray,
    ttl_s: float = np.inf,
) -> np.ndarray:
    """Longest prefix of each prompt that an earlier call of its session had.

    Args:
      streams: C prompts, each the ids of its tokens.
      session: [C].
      time_s: [C], ascending.
      ttl_s: seconds for which a call counts.

    Returns:
      Tokens, int64 [C].
    """
    found = np.zeros(len(streams), np.int64)
    for i, stream in enumerate(streams):
        for j in range(i):
            if session[i] != session[j] or time_s[j] < time_s[i] - ttl_s:
                continue
            n = min(len(stream), len(streams[j]))
            differs = np.flatnonzero(stream[:n] != streams[j][:n])
            found[i] = max(found[i], differs[0] if len(differs) else n)
    return found


def dense_reuse(
    content: np.ndarray, tokens: np.ndarray, label: np.ndarray, session: np.ndarray
) -> dict[str, np.ndarray]:
    """What became of each prompt's tokens, and what broke the prefix.

    Args:
      content: [C, N] ids, negative in the padding.
      tokens: [C, N].
      label: [C, N].
      session: [C].

    Returns:
      reference, shared, broken, fresh, position, how (a word) and cause, each [C].
    """
    rows = []
    for i in range(len(content)):
        mine = [int(c) for c in content[i] if c >= 0]
        best, reference = -1, -1
        for j in range(i):
            if session[j] != session[i]:
                continue
            theirs = [int(c) for c in content[j] if c >= 0]
            depth = 0
            while depth < min(len(mine), len(theirs)) and mine[depth] == theirs[depth]:
                depth += 1
            if depth >= best:
                best, reference = depth, j
        sizes = tokens[i, : len(mine)]
        if reference < 0:
            rows.append((-1, 0, 0, int(sizes.sum()), 0, "first", -1))
            continue
        old = [int(c) for c in content[reference] if c >= 0][best:]
        new = mine[best:]
        fresh = sum(int(t) for c, t in zip(new, sizes[best:]) if c not in old)
        broken = int(sizes[best:].sum()) - fresh
        how, cause = "extended", -1
        if old and new:
            cause = label[i, best]
            if old[0] in new:
                how = "reordered" if new[0] in old else "inserted"
            elif new[0] in old:
                how, cause = "removed", label[reference, best]
            else:
                how = "edited" if label[i, best] == label[reference, best] else "replaced"
        shared = sizes[:best].sum()
        rows.append((reference, int(shared), broken, fresh, best, how, int(cause)))
    names = ("reference", "shared", "broken", "fresh", "position", "how", "cause")
    return {name: np.array(column) for name, column in zip(names, zip(*rows))}
