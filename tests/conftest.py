"""Shared fixtures: where the real data lies, and a compilation cache for the run."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

# Tests are compile-bound: workers, reruns and the commands they start share compiled programs.
_cache = os.environ.get("JAXMEM_TEST_CACHE", str(Path(tempfile.gettempdir()) / "jaxmem-test-cache"))
os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
jax.config.update("jax_compilation_cache_dir", _cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

# Fusion emitters make jax 0.10.1 compile twice as long; later versions no longer know the flag.
# Examples, README and the test of the jax version run with them, as users do.
if jax.__version__ == "0.10.1":
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
    )

_MAPPINGS = 25_000
_DATA = Path(os.environ.get("JAXMEM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data, or a skip that says where it was looked for."""
    if not _DATA.is_dir():
        pytest.skip(f"no real data in {_DATA}: set JAXMEM_DATA")
    return _DATA


@pytest.fixture(scope="module")
def unoptimised() -> Iterator[None]:
    """Compile without the costly passes while a module runs: small programs do not repay them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module", autouse=True)
def few_mappings() -> Iterator[None]:
    """Drop compiled programs before the process has more mappings than Linux allows (65,530).

    Each program has a few; past the limit a compile aborts the process.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > _MAPPINGS:
        jax.clear_caches()


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Say how many tests of real data ran and how many were skipped."""
    yield
    ran = sum(
        "data_dir" in getattr(report, "keywords", {})
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
    )
    skipped = sum(
        "no real data" in str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    )
    terminalreporter.write_line(f"tests of real data: {ran} ran, {skipped} skipped")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs real data, so that the summary can count it; the longest tests run first."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)
    for item in items:
        if "data_dir" in getattr(item, "fixturenames", ()):
            item.keywords["data_dir"] = True
