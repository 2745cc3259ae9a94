"""Section G of the cases: images, video and audio, through the public door, on both databases."""

from __future__ import annotations

import copy
import io
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.types import Placeholder, RolloutFnEvalOutput, Sample
from tests.cases.children import in_a_new_process, pixels_of

BYTES_A_PIXEL = (
    {"L": 1, "P": 1}
    | dict.fromkeys(("LA", "La", "PA", "I;16", "I;16B"), 2)
    | dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 3)
    | dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK", "I", "F"), 4)
)


def _noise(n_bytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(n_bytes)


def _image(mode: str, size: tuple[int, int]) -> Image.Image:
    if mode == "1":
        return _image("L", size).point(lambda v: v & 128).convert("1")
    if mode == "F":
        return Image.fromarray(np.random.default_rng(0).normal(size=size[::-1]).astype(np.float32))
    return Image.frombytes(mode, size, _noise(size[0] * size[1] * BYTES_A_PIXEL[mode]))


def _palette_images() -> dict[str, Image.Image]:
    plain, index, table = (_image("P", (7, 5)) for _ in range(3))
    for image in (plain, index, table):
        image.putpalette(_noise(768))
    index.info["transparency"] = 3
    table.info["transparency"] = bytes(range(200))
    return {"P with a palette": plain, "P, one clear colour": index, "P, clearness by colour": table}


def _deep_images() -> dict[str, Image.Image]:
    sixteen = Image.new("I;16", (3, 2), 40_000)
    thirty_two = Image.new("I", (3, 2), 100_000)
    thirty_two.putpixel((1, 1), -5)
    return {"40000 in I;16": sixteen, "100000 in I": thirty_two}


def _animation() -> Image.Image:
    content = io.BytesIO()
    frames = [Image.new("P", (6, 4), number) for number in (0, 1, 2)]
    for frame in frames:
        frame.putpalette(_noise(768))
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=40)
    return Image.open(io.BytesIO(content.getvalue()))


def _with_exif() -> Image.Image:
    image, content = _image("RGB", (8, 8)), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "turned"
    image.save(content, "JPEG", exif=exif)
    return Image.open(io.BytesIO(content.getvalue()))


def every_image() -> dict[str, Image.Image]:
    images = {f"{mode} {size}": _image(mode, size) for mode in (*BYTES_A_PIXEL, "1") for size in ((5, 3), (70, 40))}
    images |= {f"{mode}, empty": Image.new(mode, (0, 0)) for mode in ("RGB", "L", "1", "F")}
    return images | _palette_images() | _deep_images() | {"animated": _animation(), "EXIF": _with_exif()}


def test_g1_every_mode_comes_back_pixel_for_pixel(store_url: str) -> None:
    images = every_image()
    groups = [[make_sample(0, multimodal_inputs={"images": [image], "name": name})] for name, image in images.items()]
    with run_of(store_url) as run:
        run.record_train(0, groups)
    loaded = loaded_train(store_url, 0).samples
    for [sample], (name, image) in zip(loaded, images.items(), strict=True):
        [back] = sample.multimodal_inputs["images"]
        assert_same(back, image, path=name)
        assert (back.mode, back.size, back.tobytes()) == (image.mode, image.size, image.tobytes()), name
        assert back.info.get("transparency") == image.info.get("transparency"), name
        if image.mode == "P":
            assert back.convert("RGBA").tobytes() == image.convert("RGBA").tobytes(), name
    assert loaded[list(images).index("EXIF")][0].multimodal_inputs["images"][0].getexif()[0x0112] == 6
    assert_same(loaded, groups)


def test_g1_images_in_the_messages_of_a_prompt_come_back(store_url: str) -> None:
    image = _image("RGB", (70, 40))
    prompt = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "what?"}]}]
    groups = [[make_sample(i, prompt=copy.deepcopy(prompt)) for i in range(3)]]
    with run_of(store_url) as run:
        run.record_train(0, groups)
    assert_same(loaded_train(store_url, 0).samples, groups)
    with opened(store_url) as store:
        assert store.stats().n_prompts == 1


# -- G2: what an image shows is read while it is recorded


@pytest.mark.parametrize("afterwards", ["deleted", "overwritten"])
def test_g2_a_lazy_image_outlives_its_file(store_url: str, tmp_path: Path, afterwards: str) -> None:
    path = tmp_path / "picture.png"
    _image("RGB", (70, 40)).save(path)
    expected = _image("RGB", (70, 40)).tobytes()
    lazy = Image.open(path)  # no pixel was read yet
    with run_of(store_url) as run:
        run.record_train(0, [[make_sample(0, multimodal_inputs={"images": [lazy]})]])
    if afterwards == "deleted":
        path.unlink()
    else:
        Image.new("RGB", (70, 40), "red").save(path)
    assert in_a_new_process(pixels_of, store_url) == [expected]


def test_g2_a_lazy_image_is_read_before_a_background_record_returns(store_url: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    _image("RGB", (70, 40)).save(path)
    with run_of(store_url) as run:
        with Image.open(path) as lazy:
            run.record_train(0, [[make_sample(0, multimodal_inputs={"images": [lazy]})]], background=True)
        path.unlink()
    assert pixels_of(store_url) == [_image("RGB", (70, 40)).tobytes()]


@pytest.fixture(params=["truncated", "closed"])
def unreadable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Image.Image]:
    """An image whose pixels were not read before its file was cut or closed."""
    path = tmp_path / "picture.jpg"
    _image("RGB", (70, 40)).save(path)
    if request.param == "truncated":
        path.write_bytes(path.read_bytes()[:-400])
    with Image.open(path) as image:
        if request.param == "closed":
            image.close()
        yield image


def test_g2_an_image_that_cannot_be_read_is_named_and_nothing_is_written(
    store_url: str, unreadable: Image.Image
) -> None:
    groups = make_train_output(2, 2).samples
    groups[1][1].multimodal_inputs = {"images": [_image("L", (70, 40)), unreadable]}
    with run_of(store_url) as run:
        with pytest.raises(UnsupportedValueError, match=r"group 1, sample 1, multimodal_inputs\['images'\]\[1\]"):
            run.record_train(0, groups)
        assert run.rollouts(attempts=True) == []


def test_g2_lenient_recording_marks_an_image_that_cannot_be_read(store_url: str, unreadable: Image.Image) -> None:
    groups = make_train_output(2, 2).samples
    groups[1][1].multimodal_inputs = {"images": [_image("L", (70, 40)), unreadable]}
    with run_of(store_url) as run:
        info = run.record_train(0, groups, strict=False)
    assert info.placeholders == ("group 1, sample 1, multimodal_inputs['images'][1]",)
    loaded = loaded_train(store_url, 0).samples
    mark = loaded[1][1].multimodal_inputs["images"][1]
    assert isinstance(mark, Placeholder)
    assert "JpegImageFile" in mark.type_name
    groups[1][1].multimodal_inputs["images"][1] = mark
    assert_same(loaded, groups)


def test_g2_an_image_that_was_closed_after_its_pixels_were_read_is_kept(store_url: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    _image("RGB", (70, 40)).save(path)
    image = Image.open(path)
    image.load()
    image.fp = None
    with run_of(store_url) as run:
        run.record_train(0, [[make_sample(0, multimodal_inputs={"images": [image]})]])
    assert pixels_of(store_url) == [_image("RGB", (70, 40)).tobytes()]


# -- G4: one image, eight samples


def _shared(image: Image.Image, first_index: int = 0) -> list[list[Sample]]:
    return [[make_sample(first_index + i, multimodal_inputs={"images": [copy.deepcopy(image)]}) for i in range(8)]]


@pytest.mark.parametrize("mode", ["RGB", "P"])
def test_g4_an_image_is_stored_once_and_goes_with_the_last_rollout_that_shows_it(store_url: str, mode: str) -> None:
    size = (1000, 1000 if mode == "RGB" else 3000)  # 3 MB
    image = _image(mode, size)
    with opened(store_url) as store:
        run = store.run("contract")

        def n_blobs() -> int:
            return store.stats().n_blobs

        run.record_train(0, _shared(image))
        assert n_blobs() == 1
        assert store.stats().blob_bytes < 1.05 * 3_000_000
        run.record_train(1, _shared(image, 8))
        run.record_eval(1, RolloutFnEvalOutput({"seen": {"samples": _shared(image)[0]}}))
        assert n_blobs() == 1
        run.delete_rollout(0)
        assert n_blobs() == 1
        assert_same(loaded_train(store_url, 1).samples, _shared(image, 8))
        run.delete_rollout(1)
        assert n_blobs() == 1
        assert_same(loaded_eval(store_url, 1).data["seen"]["samples"], _shared(image)[0])
        run.delete_rollout(1, kind="eval")
        assert n_blobs() == 0
        run.record_train(2, _shared(image))  # and it can come again
        assert n_blobs() == 1
    assert_same(loaded_train(store_url, 2).samples, _shared(image))
    if store_url.startswith("sqlite"):
        directory = Path(store_url.removeprefix("sqlite:///") + "-blobs")
        assert len([path for path in directory.glob("*/*") if path.is_file()]) == 1


def test_g4_copies_that_come_back_are_independent(store_url: str) -> None:
    image = _image("RGB", (70, 40))
    with run_of(store_url) as run:
        run.record_train(0, _shared(image))
    [group] = loaded_train(store_url, 0).samples
    group[0].multimodal_inputs["images"][0].putpixel((0, 0), (1, 2, 3))
    for sample in group[1:]:
        assert_same(sample.multimodal_inputs["images"][0], image)


def test_g4_pixel_tensors_that_samples_share_are_stored_once(store_url: str) -> None:
    pixels = torch.from_numpy(np.random.default_rng(0).normal(size=(500, 600)).astype(np.float32))
    groups = [
        [make_sample(i, multimodal_train_inputs={"pixel_values": p, "n": i}) for i, p in enumerate(copies)]
        for copies in ([pixels] * 4, [pixels.clone() for _ in range(4)])
    ]
    with opened(store_url) as store:
        store.run("contract").record_train(0, groups)
        assert store.stats().n_blobs == 1
    loaded = loaded_train(store_url, 0).samples
    assert_same(loaded, groups)
    loaded[0][0].multimodal_train_inputs["pixel_values"].zero_()
    assert_same(loaded[0][1:], groups[0][1:])


# -- G6: video and audio

VIDEO = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (8, 3, 32, 32), dtype=np.uint8))
AUDIO = np.random.default_rng(0).normal(size=16_000).astype(np.float32)
MEDIA: dict[str, dict[str, Any]] = {
    "a tensor of frames": {"videos": [VIDEO]},
    "frames with facts": {"videos": [(VIDEO, {"fps": 2.0, "total_num_frames": np.int64(8)})]},
    "paths": {"images": ["/data/missing.png"], "videos": ["/data/missing.mp4"]},
    "a list of frames": {"videos": [[_image("RGB", (32, 32)) for _ in range(4)]]},
    "an array of frames": {"videos": [VIDEO.numpy()]},
    "a waveform and its rate": {"audios": [(AUDIO, 16_000)], "audio": [AUDIO.astype(np.int16), AUDIO[::2]]},
    "encoded audio": {"audio": [b"RIFF" + _noise(5000), bytearray(_noise(10))]},
    "nothing": {"images": None, "videos": [], "audio": ()},
}


def test_g6_video_and_audio_keep_their_containers_and_dtypes(store_url: str) -> None:
    groups = [[make_sample(0, multimodal_inputs=media)] for media in MEDIA.values()]
    with run_of(store_url) as run:
        run.record_train(0, groups)
    loaded = loaded_train(store_url, 0).samples
    for [sample], (name, media) in zip(loaded, MEDIA.items(), strict=True):
        assert_same(sample.multimodal_inputs, media, path=name)
    assert loaded[list(MEDIA).index("paths")][0].multimodal_inputs["images"] == ["/data/missing.png"]


# -- G7: what processors return


class BatchFeature(UserDict[str, Any]):
    """Shaped as transformers' class of this name, which is a UserDict as well."""

    def __getattr__(self, name: str) -> Any:
        if name == "data" or name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None


def _train_inputs() -> dict[str, Any]:
    return {
        "pixel_values": torch.randn(4, 300).to(torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, 2, 2]]),
        "second_per_grid_ts": [0.5],
        "meta": "x",
        "none": None,
        "mm_audio_num_tokens": np.array([3, 4]),
    }


def test_g7_processor_output_with_other_values_comes_back_exactly(store_url: str) -> None:
    groups = [[make_sample(0, multimodal_train_inputs=_train_inputs()), make_sample(1, multimodal_train_inputs={})]]
    with run_of(store_url) as run:
        run.record_train(0, groups)
    assert_same(loaded_train(store_url, 0).samples, groups)


def test_g7_a_batch_feature_comes_back_as_a_plain_dict_by_rule(store_url: str) -> None:
    inputs = _train_inputs()
    sample = make_sample(0, multimodal_train_inputs=BatchFeature(inputs), metadata={"nested": [BatchFeature(inputs)]})
    with run_of(store_url) as run:
        run.record_train(0, [[sample]])
    [[loaded]] = loaded_train(store_url, 0).samples
    assert_same(loaded.multimodal_train_inputs, inputs)
    assert_same(loaded.metadata, {"nested": [inputs]})
    assert type(sample.multimodal_train_inputs) is BatchFeature  # the caller's is left alone
