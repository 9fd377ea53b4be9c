"""Sizes are whole numbers within bounds, of any integer type."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.common import check_size


@pytest.mark.parametrize("size", [3, np.int64(3), np.uint8(3), jnp.int32(3)], ids=lambda x: "")
def test_whole_numbers_pass(size: Any) -> None:
    assert check_size("n", size) == 3
    assert type(check_size("n", size)) is int


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (2.5, "n must be a whole number, got 2.5"),
        ("3", "n must be a whole number, got '3'"),
        (None, "n must be a whole number, got None"),
        (True, "n must be a whole number, got True"),
        (0, "n must be at least 1, got 0"),
        (10**20, "n must be at most 2147483647, got 100000000000000000000"),
    ],
)
def test_others_are_refused(size: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_size("n", size)


def test_a_traced_size_is_refused() -> None:
    with pytest.raises(ValueError, match="n must be a whole number"):
        jax.jit(lambda n: check_size("n", n))(3)
