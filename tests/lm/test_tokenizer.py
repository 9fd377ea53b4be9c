"""Text as ids and back: text is text, markers of chats, tokenizers of folders and of GGUF files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxmem.lm.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf

tokenizers = pytest.importorskip("tokenizers")

LETTERS = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "Ċ Ċ", "< |"]
WORDS = [*LETTERS, *(merge.replace(" ", "") for merge in MERGES)]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
MISTRAL = ["<s>", "</s>", "[INST]", "[/INST]"]
TURNS = [("system", "he"), ("user", "hello 12"), ("assistant", "ll<|im_end|>"), ("user", "h")]


def metadata(special: list[str] = CHATML, pre: str = "smollm", **changes: Any) -> dict[str, Any]:
    """That of a GGUF file with a tokenizer of 256 bytes, some merges and special tokens first."""
    found = {
        "model": "gpt2",
        "pre": pre,
        "tokens": [*special, *WORDS],
        "token_type": np.int32([3] * len(special) + [1] * len(WORDS)),
        "merges": MERGES,
        "eos_token_id": len(special) - 1,
    }
    found |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in found.items() if value is not None}


def folder(
    path: Path, special: list[str] = CHATML, own: bool = True, **settings: Any
) -> dict[str, Any]:
    """Write tokenizer.json of the same tokenizer; own: special tokens are in the model too."""
    words = [*special, *WORDS] if own else WORDS
    ids = {word: id for id, word in enumerate(words)}
    model = tokenizers.models.BPE(vocab=ids, merges=[tuple(m.split(" ")) for m in MERGES])
    tokenizer = tokenizers.Tokenizer(model)
    parts = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = parts.Sequence(
        [parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    content = json.loads(tokenizer.to_str()) | settings
    (path / "tokenizer.json").write_text(json.dumps(content))
    return content


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(metadata())


@given(st.text())
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert min(ids, default=3) >= len(CHATML)


def test_smollm_reads_digits_singly_and_merges_words(tokenizer: Tokenizer) -> None:
    def pieces(text: str) -> list[str]:
        return [[*CHATML, *WORDS][id] for id in tokenizer.encode(text)]

    assert pieces("hello hello") == ["hello", "Ġ", "hello"]
    assert pieces("he12 w12") == ["he", "1", "2", "Ġw", "1", "2"]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "1212", ["1", "2", "1", "2"]),
        ("qwen2", "1212", ["1", "2", "1", "2"]),
        ("llama-bpe", "1212", ["12", "1", "2"]),  # three digits at a time: 121, 2
        ("qwen2", "he\n\nhe", ["he", "ĊĊ", "he"]),
        ("qwen2", "e\u0301", ["Ã", "©"]),  # composed
        ("llama-bpe", "e\u0301", ["e", "Ì", "ģ"]),
    ],
)
def test_rules_that_part_words(pre: str, text: str, pieces: list[str]) -> None:
    tokenizer = tokenizer_from_gguf(metadata(pre=pre, bos_token_id=0))
    assert [[*CHATML, *WORDS][id] for id in tokenizer.encode(text)] == pieces


@pytest.mark.parametrize("special", [CHATML, LLAMA3, MISTRAL], ids=lambda names: names[1])
@pytest.mark.parametrize("source", ["gguf", "folder", "outside", "ordinary"])
def test_special_tokens_in_a_text_are_text(special: list[str], source: str, tmp_path: Path) -> None:
    if source == "gguf":
        tokenizer = tokenizer_from_gguf(metadata(special))
    else:
        content = folder(tmp_path, special, own=source != "outside")
        if source == "ordinary":  # added, and not said to be special
            for token in content["added_tokens"]:
                token["special"] = False
            (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        tokenizer = tokenizer_from_folder(tmp_path, 0)
    text = f"a{special[0]}b {''.join(special)}\n{special[-1]}"
    ids = tokenizer.encode(text)
    full = tokenizers.Tokenizer.from_file if source != "gguf" else None
    marks = (
        {full(str(tmp_path / "tokenizer.json")).token_to_id(t) for t in special}
        if full
        else {*range(len(special))}
    )
    assert not marks & set(ids)
    assert tokenizer.decode(ids) == text


def test_chatml(tokenizer: Tokenizer) -> None:
    wanted = []
    for role, text in TURNS:
        newline = tokenizer.encode("\n")
        wanted += [1, *tokenizer.encode(role), *newline, *tokenizer.encode(text), 2, *newline]
    assert tokenizer.chat(TURNS, open=False) == wanted
    opened = tokenizer.chat(TURNS)
    assert opened == [*wanted, 1, *tokenizer.encode("assistant\n")]
    assert tokenizer.chat([]) == [1, *tokenizer.encode("assistant\n")]
    assert tokenizer.end == tokenizer.eos == 2
    assert tokenizer.bos is None
    assert tokenizer.decode(tokenizer.chat(TURNS[:1], open=False)) == (
        "<|im_start|>system\nhe<|im_end|>\n"
    )


def test_llama3() -> None:
    tokenizer = tokenizer_from_gguf(
        metadata([*LLAMA3, "<|end_of_text|>"], "llama-bpe", bos_token_id=0)
    )
    assert (tokenizer.bos, tokenizer.end, tokenizer.eos) == (0, 3, 4)
    assert tokenizer.decode(tokenizer.chat(TURNS[:2])) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nhe<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nhello 12<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_mistral() -> None:
    tokenizer = tokenizer_from_gguf(
        metadata(MISTRAL, bos_token_id=0, eos_token_id=1, add_bos_token=True)
    )
    assert (tokenizer.bos, tokenizer.end, tokenizer.eos) == (0, 1, 1)
    assert tokenizer.decode(tokenizer.chat(TURNS)) == (
        "<s>[INST]he\n\nhello 12[/INST]ll<|im_end|></s>[INST]h[/INST]"
    )
    with pytest.raises(ValueError, match="user's turn last"):
        tokenizer.chat(TURNS[:3])
    with pytest.raises(ValueError, match="after the system's"):
        tokenizer.chat(TURNS[:1])


def test_a_chat_that_goes_on_starts_alike(tokenizer: Tokenizer) -> None:
    whole = tokenizer.chat(TURNS, open=False)
    for count in range(len(TURNS)):
        part = tokenizer.chat(TURNS[:count], open=False)
        assert whole[: len(part)] == part
        answered = tokenizer.chat([*TURNS[:count], ("assistant", "\n hello")], open=False)
        opened = tokenizer.chat(TURNS[:count])
        assert answered[: len(opened)] == opened


def test_a_folder_and_a_gguf_file_of_one_tokenizer_agree(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder(tmp_path)
    other = tokenizer_from_folder(tmp_path)
    assert other.fingerprint == tokenizer.fingerprint
    assert (other.eos, other.end, other.vocabulary) == (2, 2, len(WORDS) + 3)
    assert other.encode("hello w12 é") == tokenizer.encode("hello w12 é")
    filled = metadata(
        tokens=[*CHATML, *WORDS, "[PAD0]"],
        token_type=np.int32([3] * 3 + [1] * len(WORDS) + [5]),
    )
    padded = tokenizer_from_gguf(filled)
    assert padded.vocabulary == tokenizer.vocabulary + 1
    assert padded.fingerprint == tokenizer.fingerprint
    changed = tokenizer_from_gguf(metadata(merges=MERGES[:-1]))
    assert changed.fingerprint != tokenizer.fingerprint
    assert len(tokenizer.fingerprint) == 64


def test_settings_of_a_folder(tmp_path: Path) -> None:
    truncating = {
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        },
    }
    folder(tmp_path, **truncating)
    assert len(tokenizer_from_folder(tmp_path).encode("abcde")) == 5
    assert tokenizer_from_folder(tmp_path, eos=0).eos == 0
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}, "bos_token": "a"}))
    found = tokenizer_from_folder(tmp_path, eos=2)
    assert (found.eos, found.end, found.bos) == (0, 2, None)


def test_a_folder_whose_texts_start_with_a_token(tmp_path: Path) -> None:
    content = folder(tmp_path, LLAMA3)
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|begin_of_text|>": {
                "id": "<|begin_of_text|>",
                "ids": [0],
                "tokens": ["<|begin_of_text|>"],
            }
        },
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<|begin_of_text|>"}')
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.bos == 0
    assert tokenizer.encode("he") == [4 + WORDS.index("he")]
    assert tokenizer.chat([("user", "he")])[:2] == [0, 1]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model"),
        ({"model": None}, "tokenizer.ggml.model"),
        ({"pre": "gpt-4o"}, "gpt-4o"),
        ({"pre": None}, "tokenizer.ggml.pre"),
        ({"pre": np.int32([1, 2])}, "tokenizer.ggml"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": []}, "token_type"),
        ({"tokens": ["a", "a", *LETTERS]}, "tokens that differ"),
        ({"token_type": np.int32([1])}, "token_type"),
        ({"token_type": 3}, "token_type"),
        ({"merges": ["h e", "q zz"]}, "merges"),
        ({"merges": ["he"]}, "merges of two"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"eos_token_id": 10**6}, "eos"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"add_bos_token": True, "bos_token_id": -5}, "bos"),
    ],
    ids=str,
)
def test_metadata_that_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        tokenizer_from_gguf(metadata(**change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", ""),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}, "merges": [["a"]]}}'),
        ("tokenizer.json", '{"model": 3}'),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"eos_token": "</s>"}'),
    ],
)
def test_folders_that_are_refused(name: str, text: str | None, tmp_path: Path) -> None:
    folder(tmp_path)
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="expected") as caught:
        tokenizer_from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_turns_texts_and_ids(tokenizer: Tokenizer) -> None:
    for turn in [("tool", "x"), ("user",), "ab", ("user", 3), None]:
        with pytest.raises(ValueError, match="expected"):
            tokenizer.chat([turn])  # type: ignore[list-item]
    for text in (b"x", None, "\ud800"):
        with pytest.raises(ValueError, match="expected a text"):
            tokenizer.encode(text)  # type: ignore[arg-type]
    for id in (-1, tokenizer.vocabulary):
        with pytest.raises(ValueError, match="expected ids"):
            tokenizer.decode([id])
    plain = tokenizer_from_gguf(metadata(["<|endoftext|>"], eos_token_id=None))
    assert plain.eos == plain.end == 0
    with pytest.raises(ValueError, match="markers of a chat"):
        plain.chat([("user", "x")])
    with pytest.raises(ValueError, match="ends a text"):
        tokenizer_from_gguf(metadata(["<x>"], eos_token_id=None))


def test_smollm2_itself() -> None:
    from jaxmem.lm.weights.gguf_header import read_header
    from jaxmem.lm.weights.smollm2 import smollm2_path

    try:
        path = smollm2_path()
    except ValueError as error:
        pytest.skip(str(error))
    with open(path, "rb") as file:
        found = read_header(file).metadata
    tokenizer = tokenizer_from_gguf(found)
    # Ids of transformers' own reading of the same file.
    assert tokenizer.encode("Hello world, it's 12345")[:4] == [19556, 905, 28, 357]
    assert tokenizer.chat([("system", "Be kind."), ("user", "Who are you? 12")]) == [
        *[1, 9690, 198, 6077, 1942, 30, 2, 198, 1, 4093, 198, 10576, 359, 346, 47, 216, 33, 34],
        *[2, 198, 1, 520, 9531, 198],
    ]
    special = [t for t, k in zip(found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"])
               if k == 3]  # fmt: skip
    ids = tokenizer.encode("".join(special))
    assert not {found["tokenizer.ggml.tokens"].index(t) for t in special} & set(ids)
    assert tokenizer.decode(ids) == "".join(special)
