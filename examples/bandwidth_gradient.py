"""Which number of an accelerator buys throughput? Its gradient by bandwidth and FLOP/s.

Prints:

context 1,000: 13,665 tokens/s; 1 % more bandwidth gives 0.80 %, 1 % more FLOP/s 0.18 %
context 32,000: 542 tokens/s; 1 % more bandwidth gives 0.98 %, 1 % more FLOP/s 0.00 %
"""

import dataclasses

import jax

from jaxmem.roofline import ACCELERATORS, MODELS, throughput

MODEL = MODELS["llama-3-8b"]
GPU = ACCELERATORS["h100-80gb"]
CONTEXTS = (1_000, 32_000)


Number = jax.Array | float


def tokens_s(bytes_s: Number, flops: Number, context_tokens: int) -> jax.Array:
    """Tokens a second of one accelerator full of users, with measured kernel times."""
    device = dataclasses.replace(GPU, bytes_s=bytes_s, bf16_flops=flops)
    return throughput(MODEL, device, context_tokens).tokens_s


def main() -> None:
    """Percent of throughput for one percent of bandwidth, or of FLOP/s."""
    for context in CONTEXTS:
        whole = tokens_s(GPU.bytes_s, GPU.bf16_flops, context)
        by_bytes, by_flops = jax.grad(tokens_s, argnums=(0, 1))(
            GPU.bytes_s, GPU.bf16_flops, context
        )
        print(
            f"context {context:,}: {whole:,.0f} tokens/s; 1 % more bandwidth gives"
            f" {by_bytes * GPU.bytes_s / whole:.2f} %, 1 % more FLOP/s"
            f" {by_flops * GPU.bf16_flops / whole:.2f} %"
        )


if __name__ == "__main__":
    main()
