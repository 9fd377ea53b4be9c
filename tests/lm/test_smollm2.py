"""What only a real model shows, where SmolLM2-135M-Instruct is installed (98 MB, no hub)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.config import Config
from jaxmem.lm.decoder import forward
from jaxmem.lm.generation import generate
from jaxmem.lm.model import Model, smollm2
from jaxmem.lm.parameters import Params, check_params
from jaxmem.lm.weights.smollm2 import smollm2_path

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")

TEXT = (
    "The lighthouse stands on a rock two miles from the shore. Every evening the keeper climbs the "
    "stairs, lights the lamp and writes the weather in a book. When the fog comes in, a bell rings "
    "every thirty seconds, so that ships can hear where the rocks are. In winter the sea is often "
    "too rough for the boat, and the keeper lives for weeks on bread, dried fish and tea."
)


@pytest.fixture(scope="module")
def model() -> Model:
    """In float32."""
    try:
        smollm2_path()
    except ValueError as error:
        pytest.skip(str(error))
    return smollm2("float32")


def test_sizes_of_the_documents_that_ship(model: Model) -> None:
    folder = Path(__file__).parents[2] / "examples" / "documents"
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.txt")]
    sizes = sorted(len(model.tokenizer.chat([("system", one)], open=False)) for one in texts)
    assert 900 <= sizes[0] <= 1200
    assert sizes[-1] <= 7500


def surprise(params: Params, config: Config, ids: list[int]) -> float:
    """Mean NLL of each token after the first, nats."""
    row = jnp.asarray([ids])
    logits, _ = jax.jit(forward, static_argnames="config")(
        params, config, row, jnp.arange(row.size)[None]
    )
    log_probs = np.asarray(jax.nn.log_softmax(logits[0, :-1]))
    return float(-log_probs[np.arange(len(ids) - 1), ids[1:]].mean())


def test_tokens_are_those_of_its_tokenizer(model: Model) -> None:
    text = "Café No. 7 opens at 6:30 p.m.\n\n"
    ids = model.tokenizer.encode(text)
    assert ids == [
        *(51, 1939, 2756, 2838, 30, 216, 39, 10573, 418, 216, 38, 42, 35, 32, 273, 30, 93, 30, 1116)
    ]
    assert model.tokenizer.decode(ids) == text


def test_english_is_as_likely_as_when_it_was_measured(model: Model) -> None:
    assert model.config == Config(49152, 576, 30, 9, 3, 64, 1536, 8192, 1e-5, 1e5, tied=True)
    ids = model.tokenizer.encode(TEXT)
    found = surprise(model.params, model.config, ids)
    assert found == pytest.approx(3.5016, rel=0.01)  # measured with jax 0.12.0.1
    half = smollm2("bfloat16")
    check_params(half.params, half.config)
    assert half.params["layers"]["down"].dtype == jnp.bfloat16
    assert surprise(half.params, half.config, ids) == pytest.approx(found, abs=0.01)


def test_an_answer_goes_on_as_it_did(model: Model) -> None:
    ids = model.tokenizer.chat([("user", "Why is the sky blue?")])
    made = generate(
        model.params, model.config, np.array([ids]), np.array([len(ids)]), steps=16,
        stop=(model.tokenizer.end,),
    )  # fmt: skip
    print(repr(model.tokenizer.decode(np.asarray(made.ids[0, : int(made.lengths[0])]))))
