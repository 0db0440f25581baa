"""Folders of images: each file a row, whatever its size and mode; what is no image is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from jitonnx.batch import Pixels, RowError, predict
from jitonnx.errors import InvalidArgument
from jitonnx.tools.cli import main

BYTES = '<ir_version: 8, opset_import: ["": 18]> g (uint8[N,%s] x) => (uint8[N,%s] y) { y = Identity(x) }'
FLOATS = '<ir_version: 8, opset_import: ["": 18]> g (float[N,3,4,6] x) => (float[N,3,4,6] y) { y = Identity(x) }'


def model(text: str, row: str = "") -> bytes:
    content: bytes = onnx.parser.parse_model(text.replace("%s", row)).SerializeToString()
    return content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    found = tmp_path / "images"
    found.mkdir()
    for number in range(70):
        Image.fromarray(random.integers(0, 256, (4, 6, 3), np.uint8)).save(found / f"{number:03}.png")
    (found / "notes.txt").write_text("no image")
    return found


def pixels_of(folder: Path) -> np.ndarray:
    return np.stack([np.asarray(Image.open(path)) for path in sorted(folder.glob("*.png"))])


@pytest.mark.parametrize("first", [True, False])
def test_bytes_are_the_pixels(folder: Path, first: bool) -> None:
    wanted = pixels_of(folder)
    made = predict(folder, model(BYTES, "3,4,6" if first else "4,6,3")).read_all()
    assert made.column_names == ["file", "y"]
    assert made["file"].to_pylist() == [f"{number:03}.png" for number in range(70)]
    np.testing.assert_array_equal(np.array(made["y"].to_pylist()), wanted.transpose(0, 3, 1, 2) if first else wanted)


def test_other_sizes_and_modes_are_converted(folder: Path) -> None:
    Image.new("L", (40, 20), 200).save(folder / "a.png")
    Image.new("RGBA", (3, 3), (1, 2, 3, 0)).save(folder / "b.png")
    made = predict(folder, model(BYTES, "4,6,3"), batch_rows=16).read_all()
    assert (np.array(made["y"].to_pylist()[70]) == 200).all()
    assert (np.array(made["y"].to_pylist()[71]) == [1, 2, 3]).all()
    grey = predict(folder, model(BYTES, "4,6,1")).read_all()
    assert (np.array(grey["y"].to_pylist()[70]) == 200).all()


def test_numbers_are_scaled(folder: Path) -> None:
    made = predict(folder, model(FLOATS), pixels=Pixels((0.5, 0.25, 0), (0.5, 1, 2))).read_all()
    wanted = (pixels_of(folder) / 255 - [0.5, 0.25, 0]) / [0.5, 1, 2]
    np.testing.assert_allclose(np.array(made["y"].to_pylist()), wanted.transpose(0, 3, 1, 2), atol=1e-6)
    with pytest.raises(InvalidArgument, match="mean has 2 numbers; input 'x' has 3 channels"):
        predict(folder, model(FLOATS), pixels=Pixels((0.5, 0.25)))


def test_columns_that_are_kept(folder: Path) -> None:
    assert predict(folder, model(FLOATS), keep_columns=[]).schema.names == ["y"]
    made = predict(
        folder, model(BYTES, "4,6,3"), keep_columns=["file", "x"], batch_rows=16, outputs={"y": "z"}
    ).read_all()
    assert made.column_names == ["file", "x", "z"]
    np.testing.assert_array_equal(np.array(made["x"].to_pylist()).reshape(70, 4, 6, 3), pixels_of(folder))


def test_what_is_no_image(folder: Path) -> None:
    (folder / "003.png").write_bytes(b"broken")
    with pytest.raises(RowError, match=r"row 3 of .*images.*'x' is null"):
        predict(folder, model(FLOATS)).read_all()
    made = predict(folder, model(FLOATS), on_error="keep").read_all()
    assert made.num_rows == 70 and made["y"].null_count == 1 and "null" in made["error"][3].as_py()
    with pytest.raises(InvalidArgument, match="one input whose rows"):
        predict(folder, model(BYTES, "4"))
    (folder.parent / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="no images"):
        predict(folder.parent / "empty", model(FLOATS))


def test_map(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(model(FLOATS))
    command = ["map", str(tmp_path / "m.onnx"), str(folder), "-o", str(tmp_path / "out"), "--mean", "0.5", "--std", "2"]
    main(command)
    main(command)
    made = pa.concat_tables(pyarrow.parquet.read_table(part) for part in sorted((tmp_path / "out").glob("*.parquet")))
    wanted = (pixels_of(folder).transpose(0, 3, 1, 2) / 255 - 0.5) / 2
    np.testing.assert_allclose(np.array(made["y"].to_pylist()), wanted, atol=1e-6)
    assert main(command[:-4])
    assert "another pixels" in capsys.readouterr().err
