"""Writes official.pt beside it as the official implementation does; needs torch.

    python tests/lm/data/make_official.py

2 layers, 2 heads, 1 frozen and 3 trained slots of 4 numbers. The number of key or value `side`,
layer l, head g, slot p, place k is side * 64 + l * 32 + g * 16 + p * 4 + k, which bfloat16 holds.
"""

from pathlib import Path

import torch
from torch import nn


def main() -> None:
    numbers = torch.arange(128).reshape(2, 2, 1, 2, 4, 4).to(torch.bfloat16)

    def parameters(side: int, slots: slice, trained: bool) -> nn.ParameterList:
        return nn.ParameterList(
            nn.Parameter(layer[:, :, slots].contiguous(), requires_grad=trained)
            for layer in numbers[side]
        )

    frozen, trained = slice(0, 1), slice(1, None)
    content = {
        "trainable_keys": parameters(0, trained, True),
        "trainable_values": parameters(1, trained, True),
        "frozen_keys": parameters(0, frozen, False),
        "frozen_values": parameters(1, frozen, False),
    }
    torch.save(content, Path(__file__).parent / "official.pt")


if __name__ == "__main__":
    main()
