"""Nested keys are followed to the end by a rule that may look as often as it likes."""

from pathlib import Path

import pytest

from jaxmem.agents.tasks.nested_kv import case, follow_keys, made_up, nested_kv, read_nested_kv


def check(records: list[dict[str, float]], right: list[float]) -> None:
    assert [one["accuracy"] for one in records] == right
    assert all(one["accuracy_low"] <= one["accuracy"] <= one["accuracy_high"] for one in records)


def test_drawn_data() -> None:
    data = made_up(pairs=40, chains=4)
    asked = case(data, data.chains[3][0])
    follow = dict(asked.pairs)
    value = asked.key
    for _ in range(4):
        value = follow[value]
    assert value == asked.answer
    assert value not in follow
    found = nested_kv(data, follow_keys, chains=4)
    check(found, [1.0] * 6)
    assert [one["calls"] for one in found] == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    check(nested_kv(data, lambda: follow_keys(1), chains=4), [1.0, 0, 0, 0, 0, 0])
    check(nested_kv(data, lambda: follow_keys(3), depths=[2, 3], chains=4), [1.0, 0])
    for options in ({"depths": [6]}, {"chains": 5}):
        with pytest.raises(ValueError, match="depth|chains"):
            nested_kv(data, follow_keys, **options)


def test_real_data(data_dir: Path) -> None:
    data = read_nested_kv(data_dir / "nested_kv")
    assert len(data.pairs) == 140
    assert [len(chains) for chains in data.chains] == [100] * 6
    check(nested_kv(data, follow_keys, chains=5), [1.0] * 6)
    check(nested_kv(data, lambda: follow_keys(1), chains=5), [1.0, 0, 0, 0, 0, 0])


def test_files_that_do_not_do(tmp_path: Path, data_dir: Path) -> None:
    for source in (data_dir / "nested_kv").iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    path = tmp_path / "random_orderings_100_samples_140_indices_2_levels.jsonl"
    for content in ("[1]\n", "[1, 1]\n", "[1, 140]\n", "[1, 2\n", "[true, 2]\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match="indices_2_levels.jsonl: expected"):
            read_nested_kv(tmp_path)
