"""The documents that ship with the examples, their questions, and what was measured on them."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from jaxmem import results

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "examples" / "documents").glob("*.txt"))
TABLE = ROOT / "examples" / "documents" / "table.csv"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = ROOT / "examples" / "cartridge_documents.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_questions_about_a_document(path: Path) -> None:
    found = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["questions"]
    splits = [one["split"] for one in found]
    assert (splits.count("test"), splits.count("dev")) == (40, 20)
    assert len({one["question"].lower() for one in found}) == 60
    paragraphs = path.read_text(encoding="utf-8").split("\n\n")
    assert all(1 <= one["paragraph"] <= len(paragraphs) for one in found)


def test_readme_has_the_table_of_what_was_measured(example: ModuleType) -> None:
    if not TABLE.exists():
        pytest.skip("the table is being made")
    records = results.read_records(TABLE)
    assert example.markdown(records) in (ROOT / "README.md").read_text(encoding="utf-8")
