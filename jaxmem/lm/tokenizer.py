"""Text as token ids and back, and turns of a chat between a model's own markers.

Text is text: what looks like a special token in it is not one, so a document cannot close its turn.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxmem.common.safetensors_header import short

_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = {  # of llama.cpp's names for the rules that part words
    "smollm": None,
    "qwen2": _LETTERS + r"\p{N}" + _OTHERS,
    "llama-bpe": _LETTERS + r"\p{N}{1,3}" + _OTHERS,
}
_CONTROL, _USER, _UNUSED = 3, 4, 5  # types of tokens in a GGUF file
_CHATML = ("<|im_start|>", "<|im_end|>")
_LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL = ("[INST]", "[/INST]")
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>")
_MARKERS = (*_CHATML, *_LLAMA3, *_MISTRAL, *_ENDS, "<|begin_of_text|>", "<s>")


class Tokenizer:
    """A tokenizer and the markers of its model's chats.

    Attributes:
      vocabulary: ids are below it.
      fingerprint: SHA-256 of its tokens and merges, hexadecimal.
      eos: id that ends a text.
      end: id that ends a turn of the assistant.
      bos: id that a text starts with, or None where the model has none; `encode` does not add it.
    """

    def __init__(
        self,
        tokenizer: Any,
        merges: Iterable[Sequence[str]] = (),
        *,
        eos: int | None = None,
        bos: int | None = None,
        unused: Iterable[str] = (),
    ) -> None:
        """Wrap a tokenizer of the `tokenizers` package.

        Args:
          tokenizer: a `tokenizers.Tokenizer`; it is changed so that it reads no special tokens.
          merges: its merges, pairs of tokens, for the fingerprint.
          eos: id that ends a text; None: that of the first well-known one there is.
          bos: id that a text starts with.
          unused: tokens that only fill up the vocabulary, left out of the fingerprint.

        Raises:
          ValueError: if it has no token that ends a text.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # as text
        markers = [name for name in _MARKERS if tokenizer.token_to_id(name) is not None]
        tokenizer.add_special_tokens(markers)  # where a file has them as ordinary added tokens
        self._tokenizer = tokenizer
        tokens: dict[str, int] = tokenizer.get_vocab(True)
        if not tokens:
            raise ValueError("expected a tokenizer with tokens, got none")
        self.vocabulary = max(tokens.values()) + 1
        left_out = set(unused)
        canonical = {
            "tokens": sorted([id, token] for token, id in tokens.items() if token not in left_out),
            "merges": [list(pair) for pair in merges],
        }
        text = json.dumps(canonical, separators=(",", ":"))
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        if eos is None:
            eos = next((tokens[name] for name in _ENDS if name in tokens), None)
        if eos is None:
            raise ValueError(f"expected a token that ends a text, such as {', '.join(_ENDS)}")
        for name, id in (("eos", eos), ("bos", bos)):
            if id is not None and not 0 <= id < self.vocabulary:
                raise ValueError(f"expected {name} in 0..{self.vocabulary - 1}, got {id}")
        self.eos, self.bos = eos, bos
        self._tokens = tokens
        styles = (_CHATML, _LLAMA3, _MISTRAL)
        self._style: tuple[str, ...] = next(
            (style for style in styles if all(name in tokens for name in style)), ()
        )
        ends = {_CHATML: "<|im_end|>", _LLAMA3: "<|eot_id|>"}
        self.end = tokens[ends[self._style]] if self._style in ends else eos

    def encode(self, text: str) -> list[int]:
        """Ids of a text; no special token is added, and none is read out of the text.

        Args:
          text: any text.

        Returns:
          Its ids.

        Raises:
          ValueError: if it is no text, or holds half a surrogate pair.
        """
        if not isinstance(text, str):
            raise ValueError(f"expected a text to encode, got {type(text).__name__}")
        try:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeError) as error:
            raise ValueError(f"expected a text of Unicode characters, got {error}") from error

    @property
    def wrapped(self) -> Any:
        """The `tokenizers.Tokenizer` behind it."""
        return self._tokenizer

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, special tokens by their names.

        Args:
          ids: whole numbers below `vocabulary`.

        Returns:
          The text; bytes that are no UTF-8 become the replacement character.

        Raises:
          ValueError: if an id is no id.
        """
        numbers = [int(id) for id in ids]
        for number in numbers:
            if not 0 <= number < self.vocabulary:
                raise ValueError(f"expected ids in 0..{self.vocabulary - 1}, got {number}")
        return self._tokenizer.decode(numbers, skip_special_tokens=False)

    def chat(self, messages: Sequence[tuple[str, str]], *, open: bool = True) -> list[int]:
        """Turns of a chat as ids, with the markers of the model.

        ChatML (SmolLM2, Qwen), Llama 3's headers or Mistral's [INST], by the special tokens that
        there are. No default system turn is added. A chat that goes on starts with the ids of
        what came before it.

        Args:
          messages: (role, text) of each turn; roles are system, user, assistant.
          open: whether the opening of an assistant's turn follows.

        Returns:
          The ids.

        Raises:
          ValueError: if the model has no such markers, or a turn is not of this form.
        """
        turns = [_turn(message) for message in messages]
        if self._style == _CHATML:
            return self._chatml(turns, open)
        if self._style == _LLAMA3:
            return self._llama3(turns, open)
        if self._style == _MISTRAL:
            return self._mistral(turns, open)
        raise ValueError(
            "expected a tokenizer with markers of a chat, got none of "
            f"{', '.join((_CHATML[0], _LLAMA3[0], _MISTRAL[0]))}"
        )

    def _chatml(self, turns: list[tuple[str, str]], open: bool) -> list[int]:
        start, end = (self._tokens[name] for name in _CHATML)
        ids = []
        for role, text in turns:
            ids += [start, *self.encode(f"{role}\n"), *self.encode(text), end, *self.encode("\n")]
        return ids + [start, *self.encode("assistant\n")] if open else ids

    def _llama3(self, turns: list[tuple[str, str]], open: bool) -> list[int]:
        start, stop, end = (self._tokens[name] for name in _LLAMA3)
        ids = [] if self.bos is None else [self.bos]
        for role, text in turns:
            ids += [start, *self.encode(role), stop]
            ids += [*self.encode("\n\n"), *self.encode(text), end]
        return ids + [start, *self.encode("assistant"), stop, *self.encode("\n\n")] if open else ids

    def _mistral(self, turns: list[tuple[str, str]], open: bool) -> list[int]:
        start, stop = (self._tokens[name] for name in _MISTRAL)
        if open and (not turns or turns[-1][0] == "assistant"):
            raise ValueError("expected a user's turn last: Mistral's assistant has no opening")
        ids = [] if self.bos is None else [self.bos]
        held = ""  # what the system says comes before the user's next words
        for role, text in turns:
            if role == "system":
                held += f"{text}\n\n"
            elif role == "user":
                ids += [start, *self.encode(held + text), stop]
                held = ""
            else:
                ids += [*self.encode(text), self.eos]
        if held:
            raise ValueError("expected a user's turn after the system's: Mistral puts both in one")
        return ids


def tokenizer_from_folder(path: str | os.PathLike[str], eos: int | None = None) -> Tokenizer:
    """The tokenizer of a Hugging Face folder.

    Args:
      path: the folder; tokenizer.json is read, and the names of special tokens from
        tokenizer_config.json where it is there.
      eos: id that ends a text, where tokenizer_config.json names none.

    Returns:
      The tokenizer.

    Raises:
      ValueError: if the `tokenizers` package is not installed, or a file is not what it should be.
    """
    tokenizers = _package()
    folder = Path(path)
    file = folder / "tokenizer.json"
    try:
        text = file.read_text(encoding="utf-8")
        model = json.loads(text)["model"]
        merges = [_pair(merge) for merge in model.get("merges") or ()]
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except OSError as error:
        raise ValueError(f"{file}: expected a tokenizer.json, got {error.strerror}") from error
    except Exception as error:  # the package raises bare Exception
        raise ValueError(f"{file}: expected a tokenizer.json, got {_line(error)}") from error
    named = _special_names(folder / "tokenizer_config.json")
    if "eos_token" in named:
        eos = tokenizer.token_to_id(named["eos_token"])
        if eos is None:
            raise ValueError(
                f"{folder}: expected the eos_token among the tokens, got {named['eos_token']!r}"
            )
    # What the tokenizer puts before a text of its own accord, if that is a single token.
    added = tokenizer.encode("", add_special_tokens=True).ids[:1]
    starts = added == [tokenizer.token_to_id(named.get("bos_token", ""))]
    try:
        return Tokenizer(tokenizer, merges, eos=eos, bos=added[0] if starts else None)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The byte-level BPE tokenizer in the metadata of a GGUF file.

    Args:
      metadata: by key, as `read_header` has it; those of tokenizer.ggml are read.

    Returns:
      The tokenizer.

    Raises:
      ValueError: if the `tokenizers` package is not installed, or for another kind of tokenizer.
    """
    tokenizers = _package()
    kind = metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind != "gpt2":
        raise ValueError(f"expected a tokenizer.ggml.model of gpt2, got {short(kind)}")
    pre = metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str) or pre not in _PATTERNS:
        raise ValueError(f"expected tokenizer.ggml.pre as {', '.join(_PATTERNS)}, got {short(pre)}")
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = [_pair(merge) for merge in _strings(metadata, "tokenizer.ggml.merges")]
    ids = {token: id for id, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise ValueError(
            f"expected tokens that differ, got {len(tokens)} of which {len(ids)} differ"
        )
    types = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if np.shape(types) != (len(tokens),):
        raise ValueError(f"expected a token_type for {len(tokens)} tokens, got {short(types)}")
    try:
        model = tokenizers.models.BPE(
            vocab=ids, merges=merges, ignore_merges=pre == "llama-bpe", fuse_unk=False
        )
    except Exception as error:  # the package raises bare Exception
        raise ValueError(f"expected merges of the tokens, got {_line(error)}") from error
    tokenizer = tokenizers.Tokenizer(model)
    if pre == "qwen2":
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(tokenizers, pre)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    of_type = {
        wanted: [token for token, type in zip(tokens, types) if type == wanted]
        for wanted in (_CONTROL, _USER, _UNUSED)
    }
    added = tokenizers.AddedToken
    tokenizer.add_special_tokens(
        [added(token, normalized=False, special=True) for token in of_type[_CONTROL]]
    )
    tokenizer.add_tokens([added(token, normalized=False) for token in of_type[_USER]])
    starts = metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe") is True
    bos = _id(metadata, "tokenizer.ggml.bos_token_id") if starts else None
    eos = _id(metadata, "tokenizer.ggml.eos_token_id")
    return Tokenizer(tokenizer, merges, eos=eos, bos=bos, unused=of_type[_UNUSED])


def _pre_tokenizer(tokenizers: Any, pre: str) -> Any:
    parts = tokenizers.pre_tokenizers
    pattern = _PATTERNS[pre]
    if pattern is None:  # numbers a digit at a time, the rest as GPT-2 has it
        first, regex = parts.Digits(individual_digits=True), True
    else:
        first, regex = parts.Split(tokenizers.Regex(pattern), behavior="isolated"), False
    return parts.Sequence([first, parts.ByteLevel(add_prefix_space=False, use_regex=regex)])


def _turn(message: Any) -> tuple[str, str]:
    if (
        not isinstance(message, tuple | list)
        or len(message) != 2
        or not all(isinstance(part, str) for part in message)
    ):
        raise ValueError(f"expected turns of (role, text), got {short(message)}")
    role, text = message
    if role not in ("system", "user", "assistant"):
        raise ValueError(f"expected a role of system, user or assistant, got {short(role)}")
    return role, text


def _pair(merge: Any) -> tuple[str, str]:
    """Both tokens of a merge, as a list or parted by a space."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if len(parts) != 2:
        raise ValueError(f"expected merges of two tokens, got {short(merge)}")
    return parts[0], parts[1]


def _special_names(file: Path) -> dict[str, str]:
    """Names of the tokens that begin and end a text, where the file says so."""
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a JSON {type(content).__name__}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: expected a JSON object, got {_line(error)}") from error
    found = {}
    for name in ("bos_token", "eos_token"):
        token = content.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[name] = token
    return found


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    found = metadata.get(key)
    if not isinstance(found, list):
        raise ValueError(f"expected {key} as a list of strings, got {type(found).__name__}")
    return found


def _id(metadata: Mapping[str, Any], key: str) -> int | None:
    found = metadata.get(key)
    if found is not None and type(found) is not int:
        raise ValueError(f"expected {key} as a whole number, got {short(found)}")
    return found


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError("a tokenizer needs tokenizers: pip install 'jaxmem[lm]'") from error
    return tokenizers


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
