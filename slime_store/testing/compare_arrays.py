"""``assert_same`` for arrays, tensors and images. Their libraries are used only where already loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from slime_store.testing.differences import Child, Mismatch, Step, show, unequal, versus

Rule = Callable[[Any, Any], Iterator[Child]]
_DOUBLE_BYTES = 8


def rule_for(value: Any) -> Rule | None:
    """Return the rule for an array, numpy scalar or dtype, tensor or image; None for any other value."""
    numpy, torch, image = (sys.modules.get(name) for name in ("numpy", "torch", "PIL.Image"))
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _array_parts
    if numpy is not None and isinstance(value, numpy.generic):
        return _numpy_scalar_parts
    if numpy is not None and isinstance(value, numpy.dtype):
        return _dtype_parts
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_parts
    if image is not None and isinstance(value, image.Image):
        return _image_parts
    return None


def is_one_kind(one: Any, other: Any) -> bool:
    """Whether two values of different classes may be the same: images, tensors and parameters."""
    torch, image = sys.modules.get("torch"), sys.modules.get("PIL.Image")
    if image is not None and isinstance(one, image.Image):
        return isinstance(other, image.Image)
    if torch is not None and isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        plain = (torch.Tensor, torch.nn.Parameter)
        return type(one) in plain and type(other) in plain
    return False


# -- numpy ---------------------------------------------------------------------------------------


def _numpy_scalar_parts(one: Any, other: Any) -> Iterator[Child]:
    if isinstance(one, str):  # numpy's own comparison overlooks trailing NULs
        yield " as str", "".join([one]), "".join([other])
    elif isinstance(one, bytes):
        yield " as bytes", b"".join([one]), b"".join([other])
    else:
        import numpy

        pair = numpy.asarray(one), numpy.asarray(other)
        if pair[0].dtype.names is not None or pair[0].dtype != pair[1].dtype:
            yield "", *pair
        elif pair[0].dtype.itemsize and _unequal_items(*pair).any():
            raise unequal(one, other)


def _array_parts(one: Any, other: Any) -> Iterator[Child]:
    import numpy

    if one.dtype != other.dtype:
        raise Mismatch(f"{_describe(one)} != {_describe(other)}", ".dtype")
    if one.shape != other.shape:
        raise Mismatch(f"{_describe(one)} != {_describe(other)}", ".shape")
    yield from _unseen_dtype_parts(one.dtype, other.dtype, ".dtype")
    if type(one) is not numpy.ndarray and hasattr(one, "__dict__"):  # what a subclass adds, e.g. a mask
        yield ".__dict__", dict(sorted(vars(one).items())), dict(sorted(vars(other).items()))
    one, other = one.view(numpy.ndarray), other.view(numpy.ndarray)
    if one.dtype.names is not None:  # field by field: the bytes between fields mean nothing
        for name in one.dtype.names:
            yield (name,), one[name], other[name]
    elif one.dtype.hasobject:
        objects = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
        for position, (mine, theirs) in enumerate(objects):
            yield _index(position, one.shape), mine, theirs
    elif one.size and one.dtype.itemsize:
        differing = _unequal_items(one, other)
        if differing.any():
            position = int(differing.argmax())
            mine, theirs = (show(each.reshape(-1)[position].tolist()) for each in (one, other))
            raise Mismatch(versus(mine, theirs), _index(position, one.shape))


def _dtype_parts(one: Any, other: Any) -> Iterator[Child]:
    if one != other:
        raise unequal(one, other)
    yield from _unseen_dtype_parts(one, other, "")


def _unseen_dtype_parts(one: Any, other: Any, path: str) -> Iterator[Child]:
    """Yield in what dtypes may differ that are equal to numpy: metadata and a structure's class, at any depth."""
    pending = [(path, one, other)]
    while pending:  # a loop: dtypes are nested deeper than Python recurses
        path, one, other = pending.pop()
        if one.kind == other.kind == "V" and one.type is not other.type:
            raise Mismatch(f"{one.type.__name__} != {other.type.__name__}", f"{path}.type")
        if one.metadata or other.metadata:  # numpy 1.26 unpickles arrays of objects with an empty dict
            mine, theirs = (dict(each.metadata) if each.metadata else None for each in (one, other))
            yield f"{path}.metadata", mine, theirs
        if one.subdtype is not None:
            pending.append((f"{path}.base", one.base, other.base))
        for name in one.names or ():
            pending.append((f"{path}[{name!r}]", one[name], other[name]))


def _unequal_items(one: Any, other: Any) -> Any:
    """Return one bool per item, flat: whether the items differ in their bits."""
    import numpy

    numbers_per_item = 2 if one.dtype.kind == "c" else 1
    if one.dtype.kind in "fc" and one.dtype.itemsize > numbers_per_item * _DOUBLE_BYTES:  # padded
        reals = [(each.real, each.imag) if numbers_per_item == 2 else (each,) for each in (one, other)]
        differing = numpy.zeros(one.size, bool)
        for mine, theirs in zip(*reals, strict=True):
            equal = (mine == theirs) | (numpy.isnan(mine) & numpy.isnan(theirs))
            differing |= ~(equal & (numpy.signbit(mine) == numpy.signbit(theirs))).reshape(-1)
        return differing
    bits = [numpy.ascontiguousarray(each).reshape(-1).view(numpy.uint8).reshape(one.size, -1) for each in (one, other)]
    return (bits[0] != bits[1]).any(axis=1)


def _describe(array: Any) -> str:
    return f"{type(array).__name__} of {array.dtype} {tuple(array.shape)}"


def _index(position: int, shape: tuple[int, ...]) -> Step:
    index = []
    for size in reversed(shape):
        position, last = divmod(position, size)
        index.append(str(last))
    return f"[{', '.join(reversed(index))}]" if index else "[()]"


# -- torch ---------------------------------------------------------------------------------------


def _tensor_parts(one: Any, other: Any) -> Iterator[Child]:
    import torch

    for what in ("dtype", "layout", "is_nested", "shape"):
        if what == "shape" and one.is_nested:
            continue
        if getattr(one, what) != getattr(other, what):
            mine, theirs = (f"{_describe(each)} {each.layout}" for each in (one, other))
            raise Mismatch(f"{mine} != {theirs}", f".{what}")
    one, other = (each.detach().cpu().resolve_conj().resolve_neg() for each in (one, other))
    if one.is_nested:
        yield ".unbind()", one.unbind(), other.unbind()
    elif one.layout == torch.sparse_coo:
        if one.is_coalesced() != other.is_coalesced():
            one, other = one.coalesce(), other.coalesce()
        for name in ("_indices", "_values"):
            yield f".{name}()", getattr(one, name)(), getattr(other, name)()
    elif one.layout != torch.strided:
        by_rows = one.layout in (torch.sparse_csr, torch.sparse_bsr)
        for name in ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices"):
            yield f".{name}()", getattr(one, name)(), getattr(other, name)()
        yield ".values()", one.values(), other.values()
    elif one.numel():
        _check_bits(one, other)


def _check_bits(one: Any, other: Any) -> None:
    import torch

    mine, theirs = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    if torch.equal(mine, theirs):
        return
    differing = (mine != theirs).reshape(one.numel(), -1).any(dim=1)
    position = int(differing.to(torch.uint8).argmax())
    shown = (show(each.reshape(-1)[position].item()) for each in (one, other))
    raise Mismatch(versus(*shown), _index(position, tuple(one.shape)))


# -- Pillow --------------------------------------------------------------------------------------


def _image_parts(one: Any, other: Any) -> Iterator[Child]:
    mine, theirs = _frames(one), _frames(other)
    if len(mine) == len(theirs) == 1:
        for name, value in mine[0].items():
            yield f".{name}", value, theirs[0][name]
    else:
        yield ".frames", mine, theirs


def _frames(image: Any) -> list[dict[str, Any]]:
    count = getattr(image, "n_frames", 1)
    if count == 1:
        return [_frame(image)]
    shown = image.tell()
    frames = []
    for number in range(count):
        image.seek(number)
        frames.append(_frame(image))
    image.seek(shown)
    return frames


def _frame(image: Any) -> dict[str, Any]:
    image.load()
    # an RGB frame of a GIF may still carry the palette of the file, which its pixels do not use
    palette = image.palette if image.mode in ("P", "PA") else None
    return {
        "mode": image.mode,
        "size": image.size,
        "palette": None if palette is None else (palette.mode, bytes(image.getpalette(palette.mode) or ())),
        "info": dict(image.info),
        "pixels": image.tobytes(),
        "exif": dict(image.getexif()) if "exif" in image.info or getattr(image, "_exif", None) else {},
    }
