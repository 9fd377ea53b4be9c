"""These tests compile many small programs once: an optimised one would not repay itself."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def unoptimised() -> Iterator[None]:
    """Compile without the costly passes while a module runs."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def optimised(unoptimised: None) -> Iterator[None]:
    """Compile with them again, where the run takes longer than that."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
