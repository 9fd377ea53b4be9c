"""The language model beside Hugging Face transformers on the CPU, and llama.cpp's decoding.

SmolLM2-135M, all systems in one process, with a thread a core, in turn; the best of several runs,
the median beside it. The rival gets its best: a trial takes the faster kind of attention and of
cache, it makes no more logits than are asked for, and a prefix is one row of a DynamicCache,
expanded to the batch. Logits, loss and gradient are compared in float32 before anything is timed.

FLOPs are those of the matrix products, from shapes, without what is masked or computed twice; the
peak is the best product of the type measured in the same run, whoever makes it. Compiles are left
out. `speed_over_transformers` compares with the fastest of its rows whatever the type. Peak memory
is on top of what was there before: weights, rows, both systems.

torch and transformers are optional (`pip install "jaxmem[bench]"`), and so is llama-cpp-python.
torch.compile is not among the variants: it takes a minute a shape on two cores.
"""

import dataclasses
import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from lm_setting import (
    Records,
    Setting,
    Sizes,
    Systems,
    contest,
    in_turn,
    longer,
    pass_flops,
    peak_gb,
    products,
    records_of,
    seconds,
    setting_of,
)

from jaxmem.lm import Config, Model, forward, generate, smollm2
from jaxmem.lm.cartridges.course import batch_of
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.rows import places
from jaxmem.lm.cartridges.teacher import teach
from jaxmem.lm.cartridges.training import batch_kl, train
from jaxmem.lm.divergence import BLOCK
from jaxmem.lm.fit import first_question
from jaxmem.lm.parameters import Params
from jaxmem.lm.weights.smollm2 import smollm2_path
from jaxmem.recall.cartridges import Cartridge

TEXT = Path(__file__).resolve().parents[1] / "examples" / "documents" / "chronicle.txt"
ATTENTIONS = ("sdpa", "eager")
STEPS = 2  # of training that are timed together
MOST_EAGER = 2048  # tokens of a prefix beyond which eager attention is not tried

_forward = jax.jit(forward, static_argnames="config")


def main() -> Records:
    """All comparisons on SmolLM2, or a record that says how to get it."""
    try:
        model = smollm2("float32")
    except ValueError as error:
        return [{"benchmark": "lm", "system": str(error)}]
    return measure(model, Sizes())


def measure(model: Model, sizes: Sizes) -> Records:
    """The comparisons on any plain Llama, given in float32."""
    ids = np.array(model.tokenizer.encode(TEXT.read_text(encoding="utf-8")), np.int32)
    setting = setting_of(model.config, model.params, ids, sizes, rival_module())
    peaks, records = products(setting)
    if setting.rival:
        records += agreement(setting)
    records += reading(setting, peaks) + training(setting, peaks)
    for count in sizes.documents:
        records += teacher(setting, count, peaks)
    for batch in sizes.batches:
        records += decoding(setting, batch, peaks, model.name)
    return records + memory(setting)


def rival_module() -> Any:
    """lm_transformers with as many threads as JAX has, or None, said."""
    missing = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install 'jaxmem[bench]' for their rows")
        return None
    import lm_transformers
    import torch

    torch.set_num_threads(threads())
    return lm_transformers


def threads() -> int:
    """Cores that this process may use, as JAX counts them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def agreement(setting: Setting) -> Records:
    """Logits, loss and gradient of both in float32; an error where they are not the same."""
    rival, config, start = setting.rival, setting.config, setting.start
    params, model = setting.params["float32"], setting.models["float32"]
    rows, first = setting.course.rows, first_question(start)
    pairs = rival.pairs_of(start.keys, start.values)
    ours, _ = _forward(params, config, rows.ids, first + rows.offsets, cartridge=start)
    theirs = rival.logits(model, *map(rival.tensor, (rows.ids, first + rows.offsets)), pairs)
    records = [_apart("logits", np.abs(ours - theirs.numpy()).max(), 1e-3)]
    count = -(-predicted(setting) // BLOCK) * BLOCK
    batch = batch_of(setting.course, np.arange(len(rows.ids)), len(rows.ids), count)
    loss, gradient = _gradient(params, config, start, batch, first)
    their_loss, *their_gradient = rival.gradient(model, exercise(setting, start), pairs)
    records.append(_apart("loss, relative", abs(float(loss) / their_loss - 1), 1e-3))
    for name, mine, other in zip(("keys", "values"), gradient, their_gradient):
        apart = np.linalg.norm(mine - other) / np.linalg.norm(other)
        records.append(_apart(f"gradient by {name}, relative", apart, 1e-2))
    prompt, steps = setting.ids[None, : setting.sizes.prompt], max(1, setting.sizes.new // 4)
    tokens = generate(params, config, prompt, np.array([prompt.size]), steps=steps).ids
    others = rival.generate(model, rival.tensor(prompt), steps, None)
    return [*records, _apart("share of other greedy tokens", np.mean(tokens != others), 0.0)]


def _apart(what: str, difference: Any, most: float) -> dict[str, Any]:
    if not difference <= most:
        raise RuntimeError(f"expected the {what} of transformers to {most:g}, got {difference:g}")
    return {"benchmark": "agreement", "system": what, "difference": float(difference)}


@partial(jax.jit, static_argnames="config")
def _gradient(params: Params, config: Config, start: Cartridge, batch: Any, first: int) -> Any:
    def loss(keys: jax.Array, values: jax.Array) -> jax.Array:
        changed = dataclasses.replace(start, keys=keys, values=values)
        return batch_kl(params, config, changed, *batch, first)

    return jax.value_and_grad(loss, (0, 1))(start.keys, start.values)


def predicted(setting: Setting) -> int:
    """Predicted tokens of the rows."""
    return int((setting.course.rows.targets >= 0).sum())


def exercise(setting: Setting, cartridge: Cartridge) -> Any:
    """The rows behind a cartridge and what the document says of them, as the rival takes it."""
    rows, lesson = setting.course
    at = places(rows.targets, predicted(setting)).at
    taught = (np.asarray(part).reshape(-1, part.shape[-1])[at] for part in lesson[:2])
    parts = (rows.ids, first_question(cartridge) + rows.offsets, at, *taught)
    return setting.rival.Exercise(*map(setting.rival.tensor, parts))


def variants(
    setting: Setting, run: Callable[[Any], Any], attentions: tuple[str, ...] = ATTENTIONS
) -> dict[str, Systems]:
    """Calls of `run` with the rival's model: by type, with each kind of attention."""

    def call(model: Any, attention: str) -> None:
        model.set_attn_implementation(attention)
        run(model)

    return {
        f"transformers {kind}": {how: partial(call, model, how) for how in attentions}
        for kind, model in setting.models.items()
    }


def reading(setting: Setting, peaks: dict[str, float]) -> Records:
    """Logits of a batch behind a cartridge and of a long row, of all tokens and of some."""
    sizes, rival = setting.sizes, setting.rival
    records: Records = []
    for rows, length, start in (
        (sizes.rows, sizes.length, setting.start),
        (1, sizes.alone, None),
    ):
        first = first_question(start)
        ids = setting.ids[-rows * length :].reshape(rows, length)
        positions = np.broadcast_to(first + np.arange(length, dtype=np.int32), ids.shape)
        for count in (rows * length, sizes.some):
            keep = count // rows
            last = np.broadcast_to(np.arange(length - keep, length), (rows, keep))
            at = {} if keep == length else {"at": last}
            rest = {"cartridge": start} | at
            ours: Systems = {
                f"jaxmem {kind}": partial(_forward, params, setting.config, ids, positions, **rest)
                for kind, params in setting.params.items()
            }
            rivals: dict[str, Systems] = {}
            if rival:
                pairs = None if start is None else rival.pairs_of(start.keys, start.values)
                tokens, where = rival.tensor(ids), rival.tensor(positions)
                read = partial(rival.logits, ids=tokens, positions=where, pairs=pairs, keep=keep)
                rivals = variants(setting, read)
            flops = pass_flops(setting.config, rows, length, first, count)
            behind = f" behind {first} slots" if first else ""
            what = f"forward, {rows} x {length} tokens{behind}, {count} logits"
            times = contest(ours, rivals, sizes.runs)
            records += records_of(what, times, rows * length, flops, peaks)
    return records


def training(setting: Setting, peaks: dict[str, float]) -> Records:
    """Steps of Adam on a cartridge: loss, gradient, clipping, update."""
    sizes, start, rival = setting.sizes, setting.start, setting.rival
    recipe = Recipe(steps=STEPS, batch=sizes.rows, evaluate=1)
    ours: Systems = {
        f"jaxmem {kind}": lambda p=params: (
            train(  # type: ignore[misc]
                p, setting.config, start, setting.course, recipe
            ).slots
        )
        for kind, params in setting.params.items()
    }
    rivals: dict[str, Systems] = {}
    if rival:
        asked, pairs = exercise(setting, start), rival.pairs_of(start.keys, start.values)
        settings = recipe.learning_rate, recipe.clip, start.frozen
        trainers = {
            id(model): rival.Trainer(model, pairs, *settings) for model in setting.models.values()
        }
        rivals = variants(
            setting, lambda model: [trainers[id(model)].step(asked) for _ in range(STEPS)]
        )
    count, slots = predicted(setting), sizes.slots
    flops = pass_flops(setting.config, sizes.rows, sizes.length, slots, count, gradient=True)
    what = f"{STEPS} training steps, {sizes.rows} x {sizes.length} tokens behind {slots} slots"
    times = contest(ours, rivals, sizes.runs)
    return records_of(what, times, STEPS * sizes.rows * sizes.length, STEPS * flops, peaks)


def teacher(setting: Setting, count: int, peaks: dict[str, float]) -> Records:
    """The likeliest tokens of rows behind a whole document."""
    sizes, config, rival = setting.sizes, setting.config, setting.rival
    rows, whole = setting.course.rows, longer(setting.document, count)
    params, wanted = setting.params["bfloat16"], {"top_k": sizes.top_k, "batch": sizes.rows}
    ours: Systems = {"jaxmem bfloat16": lambda: teach(params, config, rows, whole, **wanted)}
    rivals: dict[str, Systems] = {}
    if rival:
        asked, pairs = exercise(setting, whole), rival.pairs_of(whole.keys, whole.values)
        attentions = ATTENTIONS if count <= MOST_EAGER else ATTENTIONS[:1]
        ask = partial(rival.likeliest, exercise=asked, pairs=pairs, top_k=sizes.top_k)
        rivals = together(variants(setting, ask, attentions))
    flops = pass_flops(config, sizes.rows, sizes.length, count, predicted(setting))
    what = f"teacher rows, {sizes.rows} x {sizes.length} tokens behind {count}"
    times = contest(ours, rivals, sizes.runs)
    return records_of(what, times, sizes.rows * sizes.length, flops, peaks)


def together(rivals: dict[str, Systems]) -> dict[str, Systems]:
    """All variants of all types as those of one rival, of which a trial takes the fastest."""
    both = {
        f"{name.removeprefix('transformers ')} {how}": run
        for name, systems in rivals.items()
        for how, run in systems.items()
    }
    return {"transformers": both}


def decoding(setting: Setting, batch: int, peaks: dict[str, float], name: str) -> Records:
    """Greedy tokens after a prompt, the same in all rows: of the whole call, and after the first.

    The first token's time is that of a call that ends there.
    """
    sizes, config, rival = setting.sizes, setting.config, setting.rival
    prompts = np.tile(setting.ids[: sizes.prompt], (batch, 1))
    params, lengths = setting.params["bfloat16"], np.full(batch, sizes.prompt)

    def ours(stop: int) -> Any:
        return generate(params, config, prompts, lengths, steps=sizes.new, stop=(stop,))

    never = config.vocabulary - 1
    made = ours(never)
    if int(made.lengths.min()) < sizes.new:
        raise RuntimeError(f"expected token {never} to end no text, got one that it ends")
    whole: Systems = {"jaxmem bfloat16": partial(ours, never)}
    first: Systems = {"jaxmem bfloat16": partial(ours, int(made.ids[0, 0]))}
    rivals: dict[str, Systems] = {}
    if rival:
        ids = rival.tensor(prompts)
        caches = (None, "static") if batch == 1 else (None,)
        makers = {
            f"{kind} {cache or 'dynamic'} cache": (model, cache)
            for kind, model in setting.models.items()
            for cache in caches
        }
        for model in setting.models.values():
            model.set_attn_implementation(ATTENTIONS[0])
        rivals["transformers"] = {
            label: partial(rival.generate, model, ids, sizes.new, cache)
            for label, (model, cache) in makers.items()
        }
        first |= {
            f"transformers {label}": partial(rival.generate, model, ids, 1, cache)
            for label, (model, cache) in makers.items()
        }
    times = contest(whole, rivals, sizes.runs)
    prefills = in_turn({name: first[name] for name in times}, 2 if batch == 1 else 1)
    flops = pass_flops(config, batch, sizes.prompt + sizes.new, 0, batch * sizes.new)
    what = f"decoding, {batch} x {sizes.new} tokens after {sizes.prompt}"
    records = records_of(what, times, batch * sizes.new, flops, peaks)
    for record in records:
        taken = min(prefills[record["system"]])
        record["first_token_s"] = taken
        record["later_tokens_s"] = batch * (sizes.new - 1) / (record["seconds"] - taken)
    if batch == 1 and name == smollm2_path().stem:
        records += llama_cpp(setting, records)
    return records


def llama_cpp(setting: Setting, beside: Records) -> Records:
    """llama.cpp's decoding of the same prompt, from the 4-bit weights of the file."""
    if not importlib.util.find_spec("llama_cpp"):
        print("llama_cpp is not installed: pip install llama-cpp-python for its row")
        return []
    from llama_cpp import Llama

    sizes = setting.sizes
    model = Llama(
        model_path=str(smollm2_path()),
        n_ctx=sizes.prompt + sizes.new,
        n_threads=threads(),
        n_threads_batch=threads(),
        verbose=False,
    )
    prompt = setting.ids[: sizes.prompt].tolist()

    def run(count: int) -> None:
        model.reset()
        made = model.generate(prompt, top_k=1, temp=0.0)
        for _ in range(count):
            next(made)

    taken = in_turn({"whole": lambda: run(sizes.new), "first": lambda: run(1)}, sizes.runs + 1)
    best, first = min(taken["whole"]), min(taken["first"])
    rivals = [row["seconds"] for row in beside if row["system"].startswith("transformers")]
    record = {
        "benchmark": beside[0]["benchmark"],
        "system": "llama.cpp Q4_1",
        "seconds": best,
        "median_s": median(taken["whole"]),
        "tokens_s": sizes.new / best,
        "speed_over_transformers": min(rivals) / best if rivals else None,
        "first_token_s": first,
        "later_tokens_s": (sizes.new - 1) / (best - first),
    }
    return [record]


def memory(setting: Setting) -> Records:
    """Peak memory of training, at equal slots, whatever the document; and of its teacher."""
    sizes, config, params = setting.sizes, setting.config, setting.params["bfloat16"]
    rows = setting.course.rows
    records: Records = []

    def record(count: int, system: str, run: Callable[[], Any]) -> None:
        what = f"memory, document of {count} tokens"
        records.append({"benchmark": what, "system": system, "peak_gb": peak_gb(run)})

    def learn(start: Cartridge, remat: bool) -> Any:
        recipe = Recipe(steps=1, batch=sizes.rows, evaluate=1, remat=remat)
        return train(params, config, start, setting.course, recipe).slots

    seconds(partial(learn, setting.start, True))  # the others are compiled by now
    for count in sizes.documents:
        whole = longer(setting.document, count)
        start = dataclasses.replace(setting.start, first_question=count)
        ask = partial(teach, params, config, rows, whole, top_k=sizes.top_k, batch=sizes.rows)
        record(count, "jaxmem bfloat16, teacher rows", ask)
        for remat in (False, True):
            system = f"jaxmem bfloat16, training, remat {'on' if remat else 'off'}"
            record(count, system, partial(learn, start, remat))
        del whole, ask
    if setting.rival:
        rival, model = setting.rival, setting.models["bfloat16"]
        pairs = rival.pairs_of(start.keys, start.values)
        trainer = rival.Trainer(model, pairs, 0.01, 1.0, start.frozen)
        step = partial(trainer.step, exercise(setting, start))
        record(count, "transformers bfloat16, training", step)
    return records
