"""Exported cartridges in PyTorch itself; runs where torch, transformers and peft are installed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from jaxmem.lm.cartridges.formats.hf_cache_file import save_hf_cache  # noqa: E402
from jaxmem.lm.cartridges.formats.peft_file import load_peft, save_peft  # noqa: E402
from jaxmem.lm.cartridges.formats.torch_file import load_torch  # noqa: E402
from jaxmem.lm.cartridges.prefix import prefix_cartridge, take  # noqa: E402
from jaxmem.lm.config import Config  # noqa: E402
from jaxmem.lm.decoder import forward  # noqa: E402
from jaxmem.lm.model import Model  # noqa: E402
from jaxmem.lm.weights.hf_folder import read_params  # noqa: E402
from jaxmem.recall.cartridges import Cartridge  # noqa: E402

CONFIG = Config(
    vocabulary=40,
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    feed_forward=24,
    positions=64,
    rope_theta=1e4,
)
pytestmark = pytest.mark.usefixtures("unoptimised")
forward_jit = jax.jit(forward, static_argnames="config")
DOCUMENT = np.array([3, 17, 29, 8, 31, 2, 25, 11, 9])
PROMPT = np.array([[7, 21, 5, 33]])


@pytest.fixture(scope="module")
def theirs() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=CONFIG.vocabulary,
        hidden_size=CONFIG.hidden,
        num_hidden_layers=CONFIG.layers,
        num_attention_heads=CONFIG.heads,
        num_key_value_heads=CONFIG.kv_heads,
        head_dim=CONFIG.head_dim,
        intermediate_size=CONFIG.feed_forward,
        max_position_embeddings=CONFIG.positions,
        rms_norm_eps=CONFIG.norm_eps,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("theirs")
    theirs.save_pretrained(folder)
    config, params = read_params(folder, "float32")
    assert config == CONFIG
    return Model(CONFIG, params, SimpleNamespace(fingerprint="b" * 64), "tiny", "0" * 16)  # type: ignore[arg-type]


def changed(cartridge: Cartridge) -> Cartridge:
    """As if it had been trained: no document has these keys and values."""
    rng = np.random.default_rng(1)
    noise = (jnp.float32(rng.normal(size=cartridge.keys.shape)) for _ in range(2))
    parts = {"keys": cartridge.keys + next(noise), "values": cartridge.values + next(noise)}
    return Cartridge(
        **parts,
        scale=cartridge.scale,
        positions=cartridge.positions,
        first_question=cartridge.first_question,
        frozen=1,
    )


def our_logits(model: Model, cartridge: Cartridge) -> np.ndarray:
    positions = int(cartridge.first_question) + np.arange(PROMPT.shape[1])[None]  # type: ignore[arg-type]
    found, _ = forward_jit(
        model.params, CONFIG, jnp.asarray(PROMPT), jnp.asarray(positions), cartridge=cartridge
    )
    return np.asarray(found)


def check_close(found: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().float().numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kept", [False, True])
def test_a_cache_gives_the_same_logits(
    tmp_path: Path, theirs: Any, ours: Model, kept: bool
) -> None:
    """As the docstring of `save_hf_cache` says."""
    from safetensors import safe_open

    made = prefix_cartridge(ours.params, CONFIG, jnp.asarray(DOCUMENT))
    if kept:
        chosen = np.random.default_rng(0).permuted(np.tile(np.arange(9), (2, 2, 1)), axis=-1)
        made = changed(take(made, jnp.asarray(np.sort(chosen[..., :4]))))
    save_hf_cache(tmp_path / "notes.safetensors", made, ours)
    cache = transformers.DynamicCache()
    with safe_open(tmp_path / "notes.safetensors", "pt") as file:
        for layer in range(theirs.config.num_hidden_layers):
            key = file.get_tensor(f"layers.{layer}.key").to(theirs.dtype)
            value = file.get_tensor(f"layers.{layer}.value").to(theirs.dtype)
            cache.update(key, value, layer)
        first = int(file.metadata()["first_question"])
    ids = torch.tensor(PROMPT)
    positions = first + torch.arange(ids.shape[1])[None]
    found = theirs(ids, past_key_values=cache, position_ids=positions).logits
    check_close(found, our_logits(ours, made))
    if not kept:  # the whole document as a cache is the document in context
        every = torch.tensor(np.concatenate([DOCUMENT[None], PROMPT], axis=1))
        check_close(theirs(every).logits[:, 9:], our_logits(ours, made))


def test_peft_loads_what_is_exported(tmp_path: Path, theirs: Any, ours: Model) -> None:
    peft = pytest.importorskip("peft")
    if not hasattr(peft, "CartridgeConfig"):
        pytest.skip("this peft has no CARTRIDGE")
    made = changed(prefix_cartridge(ours.params, CONFIG, jnp.asarray(DOCUMENT)))
    save_peft(tmp_path / "a", made, ours)
    wrapped = peft.PeftModel.from_pretrained(theirs, str(tmp_path / "a")).eval()
    assert wrapped.active_peft_config.num_frozen_tokens == 1
    check_close(wrapped(torch.tensor(PROMPT)).logits, our_logits(ours, made))


def test_what_peft_saves_is_imported(tmp_path: Path, theirs: Any, ours: Model) -> None:
    peft = pytest.importorskip("peft")
    if not hasattr(peft, "CartridgeConfig"):
        pytest.skip("this peft has no CARTRIDGE")
    config = peft.CartridgeConfig(num_virtual_tokens=6, num_frozen_tokens=2, task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(theirs, config).eval()
    wrapped.save_pretrained(str(tmp_path / "a"))
    found = load_peft(tmp_path / "a", ours)
    assert (found.slots, found.frozen) == (6, 2)
    check_close(wrapped(torch.tensor(PROMPT)).logits, our_logits(ours, found))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("frozen", [0, 1])
def test_what_torch_saves_is_imported(tmp_path: Path, ours: Model, kind: str, frozen: int) -> None:
    made = prefix_cartridge(ours.params, CONFIG, jnp.asarray(DOCUMENT))
    content = {}
    for which in ("keys", "values"):
        whole = torch.tensor(np.asarray(getattr(made, which))).to(getattr(torch, kind))
        for name, some in (("trainable", slice(frozen, None)), ("frozen", slice(0, frozen))):
            content[f"{name}_{which}"] = torch.nn.ParameterList(
                torch.nn.Parameter(layer[None, :, some].contiguous())
                for layer in (whole if frozen or name == "trainable" else ())
            )
    for protocol in (2, 4, 5):
        torch.save(content, tmp_path / "c.pt", pickle_protocol=protocol)
        found = load_torch(tmp_path / "c.pt", ours)
        assert found.keys.dtype == kind
        for which in ("keys", "values"):
            wanted = getattr(made, which).astype(kind)
            np.testing.assert_array_equal(getattr(found, which), wanted)
        assert (found.frozen, found.first_question) == (frozen, 9)
