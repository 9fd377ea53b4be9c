"""For the demos' short runs, which take less time than an optimised program to compile."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def unoptimised() -> Iterator[None]:
    """Compile without the costly passes."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
