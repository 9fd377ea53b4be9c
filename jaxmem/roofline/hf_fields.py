"""Typed access to a Hugging Face config: every error names the file and the field."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxmem.common import open_text
from jaxmem.common.names import nearest


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name, if any is near, and the list."""
    names = f" (known: {', '.join(sorted(known))})"
    near = nearest(name, known)
    return names if near == names else near + names


def load(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file, or a `ValueError` that names the file and the line."""
    try:
        with open_text(path) as file:
            content = json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text") from error
    except RecursionError as error:
        raise ValueError(f"{path}: not JSON: nested too deeply") from error
    except EOFError as error:
        raise ValueError(f"{path}: the compressed file is damaged: {error}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise ValueError(f"{path}: not JSON: {str(error).split(';')[0]}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


class Fields:
    """Typed access to the fields of one config, with the file and the field in every error."""

    def __init__(self, content: Mapping[str, Any], source: str) -> None:
        self.content, self.source = content, source

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.content.get(key) is not None

    def integer(self, key: str, default: int | None = None, low: int = 1) -> int:
        """An integer of at least `low`; `default` where it is absent or null."""
        value = self.content.get(key)
        if value is None:
            if default is None:
                raise ValueError(f"{self.source}: field {key} is missing")
            return default
        whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0
        if not whole or value < low or value > 1e9:
            shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."
            raise ValueError(f"{self.source}: {key} must be an integer >= {low}, got {shown}")
        return int(value)

    def layers(self) -> int:
        """The number of layers, bounded: each is looked at."""
        count = self.integer("num_hidden_layers")
        if count > 10_000:
            raise ValueError(
                f"{self.source}: num_hidden_layers must be at most 10,000, got {count}"
            )
        return count

    def flag(self, key: str, default: bool) -> bool:
        """True or false; `default` where it is absent or null."""
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{self.source}: {key} must be true or false, got {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; `default` where it is absent or null."""
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise ValueError(f"{self.source}: field {key} is missing")
        if not isinstance(value, str):
            raise ValueError(f"{self.source}: {key} must be a string, got {value!r}")
        return value

    def sliding(self, layers: int, rule: Callable[[int], bool], use_types: bool) -> int:
        """How many of the layers slide: by `layer_types` where it counts, else by `rule`."""
        types = self.content.get("layer_types") if use_types else None
        if types is None:
            return sum(rule(layer) for layer in range(layers))
        known = ("sliding_attention", "full_attention")
        if not isinstance(types, list) or any(t not in known for t in types):
            odd = (
                next((t for t in types if t not in known), types)
                if isinstance(types, list)
                else types
            )
            raise ValueError(f"{self.source}: layer_types must hold {known}, got {odd!r}")
        if len(types) != layers:
            raise ValueError(
                f"{self.source}: layer_types has {len(types)} entries for {layers} layers"
            )
        return types.count("sliding_attention")


class Precision:
    """Bytes a weight and arithmetic of the quantised products, and of all the rest."""

    def __init__(self, fields: Fields) -> None:
        key = "dtype" if fields.has("dtype") else "torch_dtype"
        # Engines run float32 checkpoints in 16 bits; a config that is silent is taken as bf16.
        dtype, dtypes = fields.text(key, "bfloat16"), ("float32", "bfloat16", "float16")
        if dtype not in dtypes:
            raise ValueError(f"{fields.source}: unknown {key} {dtype!r}{hint(dtype, dtypes)}")
        self.plain, self.dense, self.experts, self.compute = 2.0, 2.0, 2.0, "bf16"
        quantization = fields.content.get("quantization_config")
        if quantization is None:
            return
        if not isinstance(quantization, Mapping):
            raise ValueError(f"{fields.source}: quantization_config must be an object")
        inner = Fields(quantization, f"{fields.source}: quantization_config")
        method = inner.text("quant_method")
        if method == "fp8":
            self.dense = self.experts = 1.0
            self.compute = "fp8"
        elif method == "mxfp4":
            self.experts = 4.25 / 8  # 4 bits and an 8-bit scale for 32 weights
        elif method in ("gptq", "awq"):
            bits = inner.integer("bits")
            if bits > 16:
                raise ValueError(f"{inner.source}: bits must be at most 16, got {bits}")
            self.dense = self.experts = bits / 8
        else:
            known = ("fp8", "mxfp4", "gptq", "awq")
            raise ValueError(
                f"{inner.source}: unknown quant_method {method!r}{hint(method, known)}"
            )
