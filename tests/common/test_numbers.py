"""Sizes are whole numbers of any integer type; other numbers are real and in range."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.common import check_number, check_size


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


@pytest.mark.parametrize(
    "number", [0, 0.5, np.float32(2), np.ones(3), jnp.bfloat16(1), True], ids=lambda x: ""
)
def test_numbers_in_range_pass(number: Any) -> None:
    check_number("x", number)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("a", "x must be a number, got 'a'"),
        (None, "x must be a number, got None"),
        (1j, "x must be a number, got 1j"),
        ([np.nan], "x must be in 0..1, got"),
        (float("nan"), "x must be in 0..1, got nan"),
        (np.float32(-1), "x must be in 0..1, got -1.0"),
        (np.array([0.5, 2.0]), "x must be in 0..1, got"),
    ],
    ids=lambda x: "",
)
def test_other_numbers_are_refused(number: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_number("x", number, 0.0, 1.0)


def test_a_scalar_is_no_array_even_when_traced() -> None:
    with pytest.raises(ValueError, match=r"x must be a scalar, got shape \(2,\)"):
        jax.jit(lambda x: check_number("x", x, scalar=True))(jnp.ones(2))
    jax.jit(lambda x: check_number("x", x, scalar=True))(-1.0)
