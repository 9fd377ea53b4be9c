"""Shared fixtures: where the real data lies, and a compilation cache for the run."""

import os
import tempfile
from pathlib import Path

import jax
import pytest

# Tests are compile-bound: workers and reruns share compiled programs.
_cache = os.environ.get("JAXMEM_TEST_CACHE", str(Path(tempfile.gettempdir()) / "jaxmem-test-cache"))
jax.config.update("jax_compilation_cache_dir", _cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data, or a skip that says where it was looked for."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("JAXMEM_DATA", default))
    if not path.is_dir():
        pytest.skip(f"no real data: set JAXMEM_DATA (looked in {path})")
    return path
