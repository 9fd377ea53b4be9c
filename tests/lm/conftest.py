"""A tiny model that the tests of the decoder share."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.cartridges.course import Course
from jaxmem.lm.cartridges.prefix import prefix_cartridge, take
from jaxmem.lm.cartridges.rows import Example, Rows, pack
from jaxmem.lm.cartridges.teacher import teach
from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params, nested
from jaxmem.recall.cartridges import Cartridge


@pytest.fixture(scope="session")
def config() -> Config:
    """Two query heads a key head, odd sizes, everything on."""
    return Config(
        vocabulary=61,
        hidden=24,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        feed_forward=40,
        positions=64,
        qkv_bias=True,
        qk_norm=True,
    )


def numpy_params(config: Config, kind: str = "float32") -> Params:
    """As `init_params`, without a program for each shape."""
    rng = np.random.default_rng(7)
    drawn = {}
    for name, shape in config.shapes.items():
        noise = rng.normal(size=shape)
        if name.endswith("norm"):
            noise = 1 + 0.1 * noise
        elif name.startswith("layers.") and not name.endswith("bias"):
            noise /= np.sqrt(shape[-2])
        drawn[name] = noise.astype(kind)
    return nested(drawn)


@pytest.fixture(scope="session")
def make_params() -> Callable[..., Params]:
    """Random parameters of a shape, in a type."""
    return numpy_params


@pytest.fixture(scope="session")
def params(config: Config) -> Params:
    """Random float32 parameters."""
    return jax.tree.map(jnp.asarray, numpy_params(config))


# What is trained on in more than one file: the same shapes, so that steps are compiled once.


@pytest.fixture(scope="session")
def whole(config: Config, params: Params) -> Cartridge:
    """The prefix of 12 tokens."""
    ids = np.random.default_rng(0).integers(0, config.vocabulary, 12)
    return prefix_cartridge(params, config, ids)


@pytest.fixture(scope="session")
def rows(config: Config) -> Rows:
    """Ten questions and answers, two a row."""
    rng = np.random.default_rng(1)
    examples = [
        Example(*(tuple(rng.integers(0, config.vocabulary, n).tolist()) for n in (3, 4)))
        for _ in range(10)
    ]
    return pack(examples, 16)


@pytest.fixture(scope="session")
def course(config: Config, params: Params, whole: Cartridge, rows: Rows) -> Course:
    """What the teacher says of them."""
    return Course(rows, teach(params, config, rows, whole, top_k=5, batch=2))


@pytest.fixture(scope="session")
def few(whole: Cartridge) -> Cartridge:
    """Four of its tokens."""
    return take(whole, jnp.array([0, 3, 6, 9]))
