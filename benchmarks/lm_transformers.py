"""The rival of `lm.py`: Hugging Face transformers in PyTorch, with our parameters in it.

Prefixes stand in a DynamicCache as PEFT's cartridges do: one row of keys and values, which may
require a gradient, expanded to the batch.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from jaxmem.lm import Config
from jaxmem.lm.parameters import Params, flat
from jaxmem.lm.weights.hf_folder import NAMES

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values [1, G, P, K] of each layer."""

# From 5.24 on the argument is called cache.
_CACHE = (
    "cache"
    if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters
    else "past_key_values"
)


class Exercise(NamedTuple):
    """A batch to train on.

    ids: [B, T] tokens.
    positions: [B, T] of each.
    at: [M] predicted places of the flattened rows.
    top_ids: [M, k] the teacher's likeliest tokens.
    log_probs: [M, k] of these.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    at: torch.Tensor
    top_ids: torch.Tensor
    log_probs: torch.Tensor


def build(config: Config, params: Params) -> Any:
    """LlamaForCausalLM with our parameters, float32, none of which wants a gradient."""
    if config.qkv_bias or config.qk_norm or config.rope_llama3 or config.rope_factor != 1.0:
        raise ValueError("expected a plain Llama, got biases, norms of heads or scaling")
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            intermediate_size=config.feed_forward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.positions,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tied,
            bos_token_id=None,
            eos_token_id=None,  # nothing ends a text early
            pad_token_id=None,
        )
    )
    state = {}
    for name, array in flat(params).items():
        whole = torch.from_numpy(np.array(array, np.float32))
        if not name.startswith("layers."):
            state[NAMES[name]] = whole
            continue
        for layer, part in enumerate(whole):
            state[NAMES[name].format(layer)] = part.T.contiguous() if part.ndim == 2 else part
    missing, unknown = model.load_state_dict(state, strict=False)
    if unknown or set(missing) - ({"lm_head.weight"} if config.tied else set()):
        raise ValueError(f"expected the parameters of LlamaForCausalLM, got {missing}, {unknown}")
    model.tie_weights()
    return model.eval().requires_grad_(False)


def as_type(model: Any, kind: str) -> Any:
    """A copy of a model in another type."""
    return copy.deepcopy(model).to(getattr(torch, kind))


def pairs_of(keys: Any, values: Any) -> Pairs:
    """Our keys and values [L, G, P, K] as float32 tensors."""
    return [
        (tensor(key)[None], tensor(value)[None])
        for key, value in zip(np.array(keys, np.float32), np.array(values, np.float32))
    ]


def tensor(array: Any) -> torch.Tensor:
    """A tensor of its own; whole numbers become int64."""
    made = np.array(array)
    return torch.from_numpy(made.astype(np.int64) if made.dtype.kind in "iu" else made)


def cache_of(pairs: Pairs, batch: int, kind: torch.dtype) -> dict[str, Any]:
    """A DynamicCache of one prefix for all rows of a batch, a view; by the argument's name."""
    cache: Any = transformers.DynamicCache()
    for layer, (keys, values) in enumerate(pairs):
        cache.update(keys.to(kind), values.to(kind), layer)
        held = cache.layers[layer]
        held.keys, held.values = (
            part.expand(batch, -1, -1, -1) for part in (held.keys, held.values)
        )
    return {_CACHE: cache}


def logits(
    model: Any, ids: torch.Tensor, positions: torch.Tensor, pairs: Pairs | None, keep: int = 0
) -> torch.Tensor:
    """[B, N, V] of the last `keep` tokens, 0 for all."""
    cache = {} if pairs is None else cache_of(pairs, len(ids), model.dtype)
    with torch.inference_mode():
        return model(
            ids,
            position_ids=positions,
            use_cache=pairs is not None,
            logits_to_keep=keep,
            **cache,
        ).logits


def likeliest(
    model: Any, exercise: Exercise, pairs: Pairs, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and ids [M, k] of the predicted tokens: what a teacher says."""
    with torch.inference_mode():
        found = _predicted(model, exercise, pairs).log_softmax(-1).topk(top_k, dim=-1)
        return found.values, found.indices


def loss_of(model: Any, exercise: Exercise, pairs: Pairs) -> torch.Tensor:
    """Mean KL over the teacher's likeliest tokens and the lumped rest, nats a token."""
    given = _predicted(model, exercise, pairs)
    total = given.logsumexp(-1)
    others = given.scatter(1, exercise.top_ids, -torch.inf).logsumexp(-1)
    known = exercise.log_probs - (given.gather(1, exercise.top_ids) - total[:, None])
    shares = exercise.log_probs.exp()
    rest = (1 - shares.sum(-1)).clamp(min=0.0)
    some = rest > 1e-6
    log_rest = torch.where(some, rest, 1.0).log()
    of_rest = torch.where(some, rest * (log_rest - (others - total)), 0.0)
    return ((shares * known).sum(-1) + of_rest).mean()


def _predicted(model: Any, exercise: Exercise, pairs: Pairs) -> torch.Tensor:
    """Logits [M, V] of the predicted tokens alone, float32."""
    cache = cache_of(pairs, len(exercise.ids), model.dtype)
    states = model.model(
        exercise.ids, position_ids=exercise.positions, use_cache=True, **cache
    ).last_hidden_state
    return model.lm_head(states.flatten(0, 1)[exercise.at]).float()


class Trainer:
    """A prefix and its Adam: the first slot stays, rates are in units of a layer's numbers."""

    def __init__(self, model: Any, pairs: Pairs, rate: float, clip: float, frozen: int) -> None:
        self.model, self.clip = model, clip
        self.sinks = [tuple(part[:, :, :frozen] for part in pair) for pair in pairs]
        self.free = [
            tuple(part[:, :, frozen:].clone().requires_grad_() for part in pair) for pair in pairs
        ]
        groups = [
            {"params": [free], "lr": rate * float(part.square().mean().sqrt())}
            for pair, parts in zip(pairs, self.free)
            for part, free in zip(pair, parts)
        ]
        self.flat = [part for parts in self.free for part in parts]
        self.adam = torch.optim.Adam(groups, fused=True)

    def pairs(self) -> Pairs:
        """The prefix as it is now."""
        made = [
            [torch.cat(parts, dim=2) for parts in zip(sink, free)]
            for sink, free in zip(self.sinks, self.free)
        ]
        return [(keys, values) for keys, values in made]

    def step(self, exercise: Exercise) -> float:
        """A step of the optimiser, and the loss before it."""
        self.adam.zero_grad()
        loss = loss_of(self.model, exercise, self.pairs())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.flat, self.clip)
        self.adam.step()
        return float(loss.detach())


def gradient(model: Any, exercise: Exercise, pairs: Pairs) -> tuple[float, np.ndarray, np.ndarray]:
    """Loss, and its gradient by keys and values [L, G, P, K]."""
    free: Sequence[Any] = [tuple(part.clone().requires_grad_() for part in pair) for pair in pairs]
    loss = loss_of(model, exercise, list(free))
    loss.backward()
    keys, values = (np.concatenate([pair[i].grad.numpy() for pair in free]) for i in (0, 1))
    return float(loss.detach()), keys, values


def generate(model: Any, ids: torch.Tensor, steps: int, cache: str | None) -> np.ndarray:
    """Greedy tokens [B, N] after prompts."""
    with torch.inference_mode():
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=steps,
            do_sample=False,
            cache_implementation=cache,
            pad_token_id=0,
        )
    return found[:, ids.shape[1] :].numpy()


def matmul(first: tuple[int, int], second: tuple[int, int], kind: str) -> Callable[[], Any]:
    """A product of random matrices of these shapes, to be timed."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(*shape, generator=generator).to(getattr(torch, kind))
        for shape in (first, second)
    )
    return lambda: left @ right
