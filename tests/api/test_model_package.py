"""Model packages: what is read of them, and the sessions of their variants; against onnxruntime where it has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest

import jitonnx
from jitonnx import errors
from tests.api.faces import plain, sum_and_product

PACKAGES = [package for package in (jitonnx, onnxruntime) if hasattr(package, "ModelPackage")]
"""Those that have model packages: onnxruntime since 1.32."""
ASSET = "sha256:" + "a" * 64
ORT = {"model_file": "m.onnx", "session_options": {"session.intra_op_thread_count": "1", "own.key": "x"}}
MANIFEST: dict[str, Any] = {
    "schema_version": "1.0",
    "package_name": "two",
    "components": {
        "c": {
            "variants": {
                "gpu": {"variant_directory": "vd", "ep": "CUDAExecutionProvider", "executor_info": {"ort": ORT}},
                "v": {
                    "variant_directory": "vd",
                    "ep": "CPUExecutionProvider",
                    "device": "cpu",
                    "executor_info": {"ort": ORT},
                },
                "w": {"ep": "CPUExecutionProvider"},
            },
            "additional_metadata": {"a": 1},
        },
        "e": "ext",
        "g": {"variants": {"v": {"ep": "CUDAExecutionProvider"}}},
    },
}
EXTERNAL = {
    "variants": {"q": {"variant_directory": "qq", "ep": "CPUExecutionProvider", "executor_info": {"ort": "i.json"}}}
}
FILES: dict[str, bytes] = {
    "vd/m.onnx": sum_and_product(),
    "ext/component.json": json.dumps(EXTERNAL).encode(),
    "ext/qq/i.json": ('{"model_file":"' + ASSET + '/k.onnx"}').encode(),
    "shared_assets/sha256-" + "a" * 64 + "/k.onnx": sum_and_product(),
}


def package(folder: Path, manifest: Any = MANIFEST) -> str:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (folder / "manifest.json").write_text(text)
    return str(folder)


def alike(call: Callable[[ModuleType], Any]) -> Any:
    """What all packages give."""
    first, *others = [plain(call(each)) for each in PACKAGES]
    assert all(other == first for other in others)
    return first


def test_what_a_package_says(tmp_path: Path) -> None:
    root = package(tmp_path)

    def told(ort: ModuleType) -> list[Any]:
        context, opened = ort.ModelPackageContext(root), ort.ModelPackage.open(root)
        names = context.get_component_names()
        return [
            [context.get_schema_version(), context.get_component_count(), names],
            [[context.get_variant_count(name), context.get_variant_names(name)] for name in names],
            [context.get_variant_ep_name("c", name) for name in context.get_variant_names("c")],
            [context.resolve_string_ref(ref) for ref in ("vd", "absent", ASSET, ASSET + "/k.onnx")],
            opened.get_info(),
            [opened.get_component_json("c"), opened.get_component_json("e"), opened.get_variant_json("e", "q")],
            [opened.resolve_string_ref("m.onnx", root + "/vd", True), opened.resolve_asset_uri(ASSET)],
            ort.ModelPackage.compute_directory_hash(root + "/ext"),
        ]

    assert alike(told)[0] == [1, 3, ["c", "e", "g"]]


def test_sessions_of_variants(tmp_path: Path) -> None:
    root = package(tmp_path)
    feeds = {name: np.full((2, 3), 2, np.float32) for name in "ab"}

    def run(ort: ModuleType) -> list[Any]:
        found = []
        for name, options in (("c", None), ("c", ort.SessionOptions()), ("e", None)):
            chosen = ort.ModelPackageContext(root).select_component(name, ort.ModelPackageOptions(ort.SessionOptions()))
            session = chosen.create_session(options)
            found.append([chosen.get_selected_variant_name(), chosen.get_selected_variant_folder_path()])
            found.append(session.run(None, feeds))
        return found

    found = alike(run)
    assert [found[0][0], found[2][0], found[4][0]] == ["v", "v", "q"]


OPENING = '{"schema_version": "1.0", "components": '
BROKEN = {
    "{": "Failed to parse JSON",
    "{}": "missing required 'schema_version'",
    '{"schema_version": "1.0"}': "missing required 'components' object",
    '{"schema_version": "2.0", "components": {}}': "schema_version major 2 is not supported",
    '{"schema_version": "1.0", "components": {}, "foo": 1}': "unknown field 'foo'",
    '{"schema_version": "1.0", "components": {"c": {}}}': "missing required 'variants' object",
    OPENING + '{"c": {"variants": {"v": {"variant_directory": "no"}}}}}': "does not exist",
    OPENING + '{"c": {"variants": {"v": {"variant_directory": "../x"}}}}}': "'..' segments",
    '{"schema_version": "1.0", "components": {"c": "/etc"}}': "absolute or drive-rooted path '/etc'",
}


@pytest.mark.parametrize("manifest", BROKEN)
def test_broken_packages(tmp_path: Path, manifest: str) -> None:
    root = package(tmp_path, manifest)
    for each in PACKAGES:
        with pytest.raises(RuntimeError) as caught:
            each.ModelPackageContext(root)
        assert BROKEN[manifest] in str(caught.value)


@pytest.mark.parametrize("ort", PACKAGES, ids=lambda ort: ort.__name__)
def test_what_cannot_be(tmp_path: Path, ort: ModuleType) -> None:
    root = package(tmp_path)
    context, opened = ort.ModelPackageContext(root), ort.ModelPackage.open(root)
    options = ort.ModelPackageOptions(ort.SessionOptions())
    for call, kind, text in (
        (lambda: ort.ModelPackage.open("/nope"), OSError, "is not a directory"),
        (lambda: opened.resolve_string_ref("../x"), ValueError, "'..' segments"),
        (lambda: opened.resolve_string_ref("sha256:" + "b" * 64), FileNotFoundError, "Asset URI not declared"),
        (lambda: opened.get_component_json("x"), FileNotFoundError, "component 'x' not found"),
        (lambda: opened.get_variant_json("c", "x"), FileNotFoundError, "variant 'x' not found"),
        (lambda: context.resolve_string_ref("no", None, True), RuntimeError, "does not exist"),
        (lambda: context.select_component("g", options), RuntimeError, "No suitable model variant"),
    ):
        with pytest.raises(kind, match=text):
            call()
    opened.close()
    with pytest.raises(ValueError, match="is closed"):
        opened.get_info()


def test_packages_are_not_made_here() -> None:
    with pytest.raises(errors.NotImplemented, match="made by onnxruntime's own package"):
        jitonnx.ModelPackage()


def test_binary_information() -> None:
    for each in PACKAGES:
        compiler = each.ModelCompiler(each.SessionOptions(), sum_and_product())
        for good in ("/tmp/", "x/", "/tmp/a.b"):
            assert compiler.set_ep_context_binary_information(good, "m") is None
        for bad in (("/tmp", "m"), ("", "m"), ("/tmp/", "")):
            with pytest.raises(Exception, match=r"is not a valid directory|is empty"):
                compiler.set_ep_context_binary_information(*bad)
