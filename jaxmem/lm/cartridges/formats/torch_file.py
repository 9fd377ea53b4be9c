"""Cartridges as the official implementation saves them: a .pt of `torch.save`, without torch.

The file is a zip of a pickle and of one file of numbers for each tensor. The pickle is read as
data by `torch_pickle`; sizes are checked before anything is read.
"""

import contextlib
import errno
import math
import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

import jax.numpy as jnp
import numpy as np

from jaxmem.common.safetensors_header import UnfitError, short
from jaxmem.lm.cartridges.formats.torch_pickle import MOST_BYTES, TensorView, read_tensor_lists
from jaxmem.lm.config import Config
from jaxmem.lm.fit import check_fit
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge

_PICKLE = "data.pkl"
_PARTS = ("frozen", "fixed", "trainable")
_MOST_ENTRIES = 100_000


def load_torch(path: str | os.PathLike[str], model: Model) -> Cartridge:
    """Read a cartridge of the official implementation (cache-step*.pt).

    Such a file does not say of which model it is, only of which shape. Executes nothing of what
    is in it, and needs no torch.

    Args:
      path: the file.
      model: that is to read it; it must be the one that the cartridge was trained on.

    Returns:
      The cartridge, keys and values [L, G, P, K] in the type of the file: frozen slots first,
      positions 0 to P - 1, questions from P on.

    Raises:
      ValueError: naming what was expected and what came; if the pickle wants to call anything
        that tensors do not need, naming that.
      OSError: if it cannot be read.

    Source: HazyResearch/cartridges, `TrainableCache.save`.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a file of torch.save, got something that is no file")
    with open(path, "rb") as file:
        try:
            cartridge = _load(file, model.config)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return cartridge


def _load(file: BinaryIO, config: Config) -> Cartridge:
    with _reading_zip(), zipfile.ZipFile(_checked_start(file)) as archive:
        sizes, folder = _entries(archive, os.fstat(file.fileno()).st_size)
        if sizes[folder + _PICKLE] > MOST_BYTES:
            raise UnfitError(
                f"expected a pickle of at most {MOST_BYTES} bytes, got {sizes[folder + _PICKLE]}"
            )
        if folder + "byteorder" in sizes:
            order = archive.read(folder + "byteorder")[:20]
            if order != b"little":
                raise UnfitError(f"expected numbers in little byte order, got {short(order)}")
        lists = read_tensor_lists(archive.read(folder + _PICKLE))
        shapes = _check_lists(lists, config)
        views = [view for part in lists.values() for view in part]
        _check_storages(views, sizes, folder)
        contents = {
            key: archive.read(f"{folder}data/{key}") for key in {view.storage.key for view in views}
        }
    keys, values = (_joined(lists, which, contents) for which in ("keys", "values"))
    slots = keys.shape[2]
    frozen = slots - shapes["trainable"]
    cartridge = Cartridge(
        jnp.asarray(keys),
        jnp.asarray(values),
        config.scale,
        positions=jnp.arange(slots),
        first_question=slots,
        frozen=frozen,
    )
    check_fit(cartridge, config)
    return cartridge


def _checked_start(file: BinaryIO) -> BinaryIO:
    start = file.read(4)
    file.seek(0)
    if start != b"PK\3\4":
        raise UnfitError(
            f"expected a zip as torch.save writes it since 1.6, got a file that starts with "
            f"{start!r}"
        )
    return file


@contextlib.contextmanager
def _reading_zip() -> Iterator[None]:
    """Errors of a damaged zip in one kind."""
    try:
        yield
    except UnfitError:
        raise
    except zipfile.BadZipFile as error:
        raise UnfitError(f"expected a sound zip, got {short(str(error))}") from error
    except (
        *(ValueError, LookupError, EOFError, OverflowError, struct.error),
        *(NotImplementedError, RuntimeError),
    ) as error:
        raise UnfitError(f"expected a sound zip, got {short(str(error))}") from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # a seek to a place that is none
            raise UnfitError(f"expected a sound zip, got {short(str(error))}") from error
        raise


def _entries(archive: zipfile.ZipFile, room: int) -> tuple[dict[str, int], str]:
    """Sizes of the files in the zip by name, and the folder they are in."""
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        raise UnfitError(f"expected at most {_MOST_ENTRIES} files in the zip, got {len(entries)}")
    sizes: dict[str, int] = {}
    for entry in entries:
        name = short(entry.filename)
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise UnfitError(f"expected files stored as they are in the zip, got {name} compressed")
        if entry.flag_bits & 1:
            raise UnfitError(f"expected a zip without passwords, got {name} encrypted")
        if entry.filename in sizes:
            raise UnfitError(f"expected names that differ in the zip, got {name} twice")
        sizes[entry.filename] = entry.file_size
    if sum(sizes.values()) > room:
        raise UnfitError(f"expected at most {room} bytes in the zip, got {sum(sizes.values())}")
    pickles = [name for name in sizes if name.rpartition("/")[2] == _PICKLE]
    if len(pickles) != 1:
        raise UnfitError(f"expected one {_PICKLE} in the zip, got {len(pickles)}")
    return sizes, pickles[0].removesuffix(_PICKLE)


def _check_lists(lists: dict[str, list[TensorView]], config: Config) -> dict[str, int]:
    """Slots of each part, if its keys and values are there for all layers in the model's shape."""
    known = [f"{part}_{which}" for part in _PARTS for which in ("keys", "values")]
    for name in lists:
        if name not in known:
            raise UnfitError(f"expected lists {', '.join(known)}, got {short(name)}")
    for name in known[-2:]:
        if name not in lists:
            raise UnfitError(f"expected lists {', '.join(known[-2:])}, got none of {name}")
    if lists.get("frozen_keys") and lists.get("fixed_keys"):
        raise UnfitError("expected frozen or fixed slots, got both")
    slots: dict[str, int] = {}
    for part in _PARTS:
        both = [lists.get(f"{part}_{which}", []) for which in ("keys", "values")]
        if not any(both) and part != "trainable":  # none is an empty list, or no list
            continue
        for which, views in zip(("keys", "values"), both):
            if len(views) != config.layers:
                raise UnfitError(
                    f"expected {part}_{which} of the model's {config.layers} layers, got "
                    f"{len(views)}"
                )
            for layer, view in enumerate(views):
                count = slots.setdefault(part, view.shape[2] if len(view.shape) == 4 else 0)
                wanted = (1, config.kv_heads, count, config.head_dim)
                if view.shape != wanted:
                    raise UnfitError(
                        f"expected {part}_{which} [1, {config.kv_heads}, {count or 'slots'}, "
                        f"{config.head_dim}] of layer {layer}, got {list(view.shape)}"
                    )
    if not sum(slots.values()):
        raise UnfitError("expected at least one slot, got none")
    return slots


def _check_storages(views: list[TensorView], sizes: dict[str, int], folder: str) -> None:
    """Refuse numbers that are not in the zip, or that many tensors share."""
    kinds = {view.storage.kind.name for view in views}
    if len(kinds) > 1:
        raise UnfitError(f"expected numbers of one type, got {' and '.join(sorted(kinds))}")
    for view in views:
        there = sizes.get(f"{folder}data/{view.storage.key}", "none")
        needed = view.storage.size * view.storage.kind.itemsize
        if there != needed:
            raise UnfitError(f"expected {needed} bytes of data/{view.storage.key}, got {there}")
    wanted = sum(math.prod(view.shape) * view.storage.kind.itemsize for view in views)
    room = sum(
        {view.storage.key: sizes[f"{folder}data/{view.storage.key}"] for view in views}.values()
    )
    if wanted > room:
        raise UnfitError(
            f"expected tensors with numbers of their own, got {wanted} bytes of tensors out of "
            f"{room}"
        )


def _joined(
    lists: dict[str, list[TensorView]], which: str, contents: dict[str, bytes]
) -> np.ndarray:
    """[L, G, P, K], the slots of all parts one after another."""
    parts = [lists.get(f"{part}_{which}", []) for part in _PARTS]
    tensors = [
        np.concatenate([_tensor(view, contents) for view in views]) for views in parts if views
    ]
    return np.concatenate(tensors, axis=2)


def _tensor(view: TensorView, contents: dict[str, bytes]) -> np.ndarray:
    """[1, G, n, K], the numbers of a tensor."""
    size = view.storage.kind.itemsize
    return np.ndarray(
        view.shape,
        view.storage.kind,
        contents[view.storage.key],
        view.offset * size,
        tuple(size * stride for stride in view.strides),
    )
