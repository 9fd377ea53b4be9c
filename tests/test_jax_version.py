"""The installed jax must not be one that silently computes wrong numbers on CPU."""

import jax
import jax.numpy as jnp
import numpy as np


def test_vmapped_row_times_matrix_is_right() -> None:
    # jax 0.10.2: relative error of about one half at exactly these shapes (jax#39103).
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3, 3)).astype(np.float32)
    rows = rng.normal(size=(32_769, 3)).astype(np.float32)
    usual = {"xla_cpu_use_fusion_emitters": True} if jax.__version__ == "0.10.1" else None
    found = jax.jit(jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2)), compiler_options=usual)(
        rows
    )
    wanted = np.sum((rows.astype(np.float64) @ matrix.T.astype(np.float64)) ** 2, axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_version_is_not_one_of_the_excluded() -> None:
    assert jax.__version__ not in ("0.10.2", "0.11.0", "0.11.1")
