"""Nested key-value retrieval: values that are keys again, to be followed to the end.

It measures the machinery of an agent, not what a language model knows: keys are random.
"""

import gzip
import itertools
import json
import os
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxmem.agents.memgpt.agent import Agent
from jaxmem.agents.messages import LLM, Message, Reply, Tool
from jaxmem.agents.scripted import Scripted, calls
from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.common import check_size
from jaxmem.common.intervals import wilson_interval

_RECORDS = "kv-retrieval-140_keys.jsonl.gz"
_CHAINS = "random_orderings_100_samples_140_indices_{}_levels.jsonl"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PAIR = re.compile(rf"key = ({_UUID}), value = ({_UUID})")
QUESTION = (
    "Your archival memory holds key-value pairs. What is the value of the key {key}? If a value is "
    "itself a key, look it up in turn, until you reach a value that is no key. Send that value "
    "and nothing else."
)


class NestedKV(NamedTuple):
    """Pairs, and chains through them.

    pairs: keys and values.
    chains: by depth 0, 1, ...: lists of depth + 1 indices of pairs.
    """

    pairs: list[tuple[str, str]]
    chains: list[list[list[int]]]


class Case(NamedTuple):
    """One question.

    pairs: keys and values, those of the chain linked.
    key: that is asked for.
    answer: value at the end of the chain.
    """

    pairs: list[tuple[str, str]]
    key: str
    answer: str


def read_nested_kv(folder: str | os.PathLike[str]) -> NestedKV:
    """The data of MemGPT's experiment.

    Args:
      folder: with its files.

    Returns:
      The 140 pairs of the first record, which alone was used, and chains of depth 0 to 5.

    Raises:
      ValueError: if a file is not as expected.
      OSError: if one cannot be read.
    """
    where = Path(folder)
    with gzip.open(where / _RECORDS, "rt", encoding="utf-8") as file:
        record = _json(where / _RECORDS, file.readline())
    try:
        pairs = [(str(key), str(value)) for key, value in record["ordered_kv_records"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where / _RECORDS}: expected ordered_kv_records of pairs") from error
    chains = []
    for depth in range(6):
        path = where / _CHAINS.format(depth + 1)
        found = [_json(path, line) for line in path.read_text().splitlines() if line.strip()]
        for chain in found:
            fits = isinstance(chain, list) and len(chain) == len(set(chain)) == depth + 1
            if not fits or not all(type(i) is int and 0 <= i < len(pairs) for i in chain):
                raise ValueError(f"{path}: expected {depth + 1} different indices a line")
        chains.append(found)
    return NestedKV(pairs, chains)


def made_up(seed: int = 0, pairs: int = 140, chains: int = 100, depths: int = 6) -> NestedKV:
    """Data of the same kind, drawn.

    Args:
      seed: of the draws.
      pairs: keys and values.
      chains: of each depth.
      depths: 0 to depths - 1.

    Returns:
      Pairs and chains.

    Raises:
      ValueError: if a size is below 1, or there are fewer pairs than a chain needs.
    """
    check_size("depths", depths)
    check_size("chains", chains)
    check_size("pairs", pairs, depths)
    rng = np.random.default_rng(seed)
    ids = [str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(2 * pairs)]
    drawn = [
        [rng.permutation(pairs)[: depth + 1].tolist() for _ in range(chains)]
        for depth in range(depths)
    ]
    return NestedKV(list(zip(ids[:pairs], ids[pairs:])), drawn)


def case(data: NestedKV, chain: Sequence[int]) -> Case:
    """The question of a chain: each of its values but the last becomes the next one's key.

    Args:
      data: pairs.
      chain: indices.

    Returns:
      Pairs, key and answer.
    """
    pairs = list(data.pairs)
    for at, following in itertools.pairwise(chain):
        pairs[at] = (pairs[at][0], pairs[following][0])
    return Case(pairs, pairs[chain[0]][0], pairs[chain[-1]][1])


def follow_keys(looks: int | None = None) -> Scripted:
    """A rule in place of a language model: looks keys up, one after another.

    Args:
      looks: searches that it makes at most; None for as many as it takes.

    Returns:
      The rule.
    """

    def rule(messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        last = max(i for i, message in enumerate(messages) if message.role == "user")
        asked = re.findall(_UUID, messages[last].content)
        key, searched, value = asked[0], 0, ""
        for message in messages[last + 1 :]:
            if message.role != "tool":
                continue
            searched += 1
            found = dict(_PAIR.findall(json.loads(message.content)["message"]))
            if key not in found:  # pairs with the key in them come first: it is none
                return calls("send_message", message=value)
            key = value = found[key]
        if looks is not None and searched >= looks:
            return calls("send_message", message=value)
        return calls("archival_memory_search", query=key)

    return Scripted(rule, "rule: follow keys")


def nested_kv(
    data: NestedKV,
    model: Callable[[], LLM],
    *,
    depths: Sequence[int] | None = None,
    chains: int = 30,
    **options: Any,
) -> list[dict[str, Any]]:
    """Accuracy of an agent by depth; pairs lie in archival storage.

    Args:
      data: pairs and chains.
      model: makes the language model of an agent.
      depths: of the questions, all by default.
      chains: questions a depth, the paper's 30 by default.
      options: of the agent.

    Returns:
      A record a depth: right answers with their 95 % interval (Wilson), calls and prompt tokens a
      question.

    Raises:
      ValueError: if there is no such depth or not as many chains; what the model raises.

    Source: Packer et al. 2023, arXiv:2310.08560, section 3.2.2.
    """
    records = []
    for depth in range(len(data.chains)) if depths is None else depths:
        if not 0 <= depth < len(data.chains):
            raise ValueError(f"expected a depth of 0 to {len(data.chains) - 1}, got {depth}")
        check_size("chains", chains, 1, len(data.chains[depth]))
        right, made, read = 0, 0, 0
        for chain in data.chains[depth][:chains]:
            asked = case(data, chain)
            store = SqliteStore()
            texts = [f"key = {key}, value = {value}" for key, value in asked.pairs]
            store.add_passages("agent", texts)
            agent = Agent(model(), store, **options)
            turn = agent.send(QUESTION.format(key=asked.key))
            right += bool(turn.sent) and asked.answer in re.findall(_UUID, turn.sent[-1])[:1]
            made += turn.calls
            read += int(agent.log.prompt_tokens.sum())
            store.close()
        share = wilson_interval(right, chains)
        records.append(
            {
                "depth": depth,
                "questions": chains,
                "accuracy": right / chains,
                "accuracy_low": share.low,
                "accuracy_high": share.high,
                "calls": made / chains,
                "prompt_tokens": read / chains,
            }
        )
    return records


def _json(path: Path, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON lines, got {error}") from error
