"""Records to JSON and CSV and back."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem import results

RECORDS = [
    {"name": "a", "value": 1.5, "count": np.int64(3), "ok": True},
    {"name": "b, c", "value": jnp.float32(2), "count": 4, "extra": "x"},
]


@pytest.mark.parametrize("name", ["r.json", "r.csv", "deep/er.json"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    results.write_records(tmp_path / name, RECORDS)
    first, second = results.read_records(tmp_path / name)
    assert (first["name"], first["value"], first["count"], first["ok"]) == ("a", 1.5, 3, True)
    assert (second["name"], second["value"], second["extra"]) == ("b, c", 2.0, "x")


def test_json_is_stamped_and_strict(tmp_path: Path) -> None:
    results.write_records(tmp_path / "r.json", [{"x": float("nan"), "y": np.inf}])
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["records"] == [{"x": None, "y": None}]
    assert {"jax", "python", "device", "machine"} <= set(document["stamp"])


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"r\.txt: results are written to \.json or \.csv"):
        results.write_records(tmp_path / "r.txt", RECORDS)
    (tmp_path / "r.json").write_text("{}")
    with pytest.raises(ValueError, match=r"r\.json: expected JSON with 'records'"):
        results.read_records(tmp_path / "r.json")
