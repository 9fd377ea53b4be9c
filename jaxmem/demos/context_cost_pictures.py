"""The pictures of demo 01."""

from typing import TYPE_CHECKING

import numpy as np

from jaxmem import plots
from jaxmem.roofline import (
    ACCELERATORS,
    MODELS,
    break_even_queries,
    decode,
    prefill,
    throughput,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MODEL, H100 = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]


def draw_latency() -> "Picture":
    """Time to first token and of a step, against the context."""
    contexts = np.geomspace(250, 128_000, 150)
    picture, (left, right) = plots.figure(columns=2, width=5.2)
    for efficiency, label in (("constant", "MFU 0.70, MBU 0.80"), ("measured", "measured kernels")):
        fresh = prefill(MODEL, H100, contexts, efficiency=efficiency)
        left.loglog(contexts, np.asarray(fresh.total_s) * 1e3, label=f"prefill, {label}")
        step = decode(MODEL, H100, contexts, 1, efficiency=efficiency)
        right.semilogx(contexts, np.asarray(step.step_s) * 1e3, label=label)
    kept = prefill(MODEL, H100, contexts, contexts, efficiency="constant")
    left.loglog(contexts, np.asarray(kept.total_s) * 1e3, "--", label="KV cached, one new token")
    left.plot([250, 128e3], [8.72, 9180], "ko", label="aiconfigurator, vLLM 0.24")
    right.plot([250, 128e3], [6.15, 12.92], "ko", label="aiconfigurator, vLLM 0.24")
    left.set(title="Time to first token", xlabel="context, tokens", ylabel="ms")
    right.set(title="One decode step, batch 1", xlabel="context, tokens", ylabel="ms", ylim=(0, 14))
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=8)
    return picture


def draw_throughput() -> "Picture":
    """Tokens/s with memory full, against the context: one each, and shared."""
    contexts = np.geomspace(1_000, 128_000, 150)
    picture, (panel,) = plots.figure()
    for efficiency, style in (("constant", "-"), ("measured", "--")):
        word = "" if efficiency == "constant" else " (measured kernels)"
        own = throughput(MODEL, H100, contexts, efficiency=efficiency).tokens_s
        common = throughput(MODEL, H100, 1_000, contexts, efficiency=efficiency).tokens_s
        panel.loglog(contexts, own, style, color=plots.COLOURS[0], label=f"one each{word}")
        panel.loglog(
            contexts, common, style, color=plots.COLOURS[1], label=f"shared, 1k each{word}"
        )
    panel.set(
        title="Llama-3-8B on one H100, memory full",
        xlabel="context, tokens",
        ylabel="tokens/s, all users",
    )
    panel.legend(frameon=False, fontsize=8)
    return picture


def draw_break_even() -> "Picture":
    """Queries that repay a cartridge, against the document."""
    documents = np.geomspace(4_000, 128_000, 150)
    picture, (panel,) = plots.figure()
    settings = (
        ("KV cached", 14_400.0, 1.0, True),
        ("KV cached, training 10 x cheaper", 1_440.0, 1.0, True),
        ("KV cached, trained at a third of the price", 14_400.0, 1 / 3, True),
        ("KV not cached", 14_400.0, 1.0, False),
    )
    for label, training_s, price, cached in settings:
        queries = break_even_queries(
            MODEL,
            H100,
            documents,
            cached=cached,
            training_s=training_s,
            price_ratio=price,
            efficiency="constant",
        ).queries
        panel.loglog(documents, queries, label=label)
    panel.set(
        title="Queries that repay a cartridge (14,400 GPU s)",
        xlabel="document, tokens",
        ylabel="queries",
    )
    panel.legend(frameon=False, fontsize=8)
    return picture
