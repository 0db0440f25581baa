"""Which version of an operator a set means, and SemVer in one number."""

from __future__ import annotations

import onnx
import pytest
from onnx import defs

from jitonnx import custom, versioning
from jitonnx.ops.generate import CONTRIBUTED
from jitonnx.ops.registry import Registry, registry

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


def expected(name: str, opset: int, domain: str) -> int | None:
    """What ONNX's own database says."""
    try:
        schema = defs.get_schema(name, opset, domain)
    except defs.SchemaError:
        return None
    return None if schema.deprecated else schema.since_version


@pytest.mark.conformance("mapping")
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_operator_in_every_version(domain: str) -> None:
    names = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == domain}
    newest = versioning.newest_opset(domain)
    assert newest is not None and names
    for opset in range(1, newest + 1):
        wanted = {name: version for name in names if (version := expected(name, opset, domain)) is not None}
        of_onnxruntime = CONTRIBUTED if domain == "" else {}  # which ONNX does not have, or not yet
        contributed = {name: 1 for name, until in of_onnxruntime.items() if until is None or opset < until}
        assert versioning.operator_versions(opset, domain) == wanted | contributed
        for name in names:
            found = versioning.operator_version(name, opset, domain or "ai.onnx")
            assert found == (wanted | contributed).get(name)
    assert (domain != "") or newest == defs.onnx_opset_version()


def test_operators_that_there_are_not() -> None:
    assert versioning.operator_version("Softmax", 12) == 11
    assert versioning.operator_version("Nothing", 20) is None
    assert versioning.operator_version("Abs", 20, "no.such.domain") is None
    assert versioning.operator_versions(20, "no.such.domain") == {}
    assert versioning.newest_opset("no.such.domain") is None
    assert versioning.operator_version("FusedMatMul", 1, "com.microsoft") == 1


def test_operators_of_users() -> None:
    class Mine(custom.Elementwise):
        domain = "org.mine"
        versions = (2, 4)
        inputs, outputs = ("X",), ("Y",)

        def evaluate(self, x: object) -> object:
            return x

    own = Registry(registry)
    own.add(Mine)
    found = [versioning.operator_version("Mine", opset, "org.mine", own) for opset in (1, 2, 3, 4, 9)]
    assert found == [None, 2, 2, 4, 4] and versioning.operator_versions(3, "org.mine", own) == {"Mine": 2}


@pytest.mark.conformance("semver")
def test_semver_in_one_number() -> None:
    assert versioning.pack_semver(1, 2, 345, bits=32) == 0x01020159
    assert versioning.unpack_semver(0x01020159, bits=32) == (1, 2, 345)
    assert versioning.pack_semver(1, 2, 345) == 0x0001_0002_0000_0159
    assert str(versioning.unpack_semver(0x0001_0002_0000_0159)) == "1.2.345"
    for bits, (major, minor, patch) in versioning.LAYOUTS.items():
        for parts in ((1, 0, 0), (0, 1, 0), (2**major - 1, 2**minor - 1, 2**patch - 1), (2**major - 1, 0, 7)):
            packed = versioning.pack_semver(*parts, bits=bits)
            assert versioning.unpack_semver(packed, bits) == parts
            assert onnx.ModelProto(model_version=packed).model_version == packed, "model_version holds it"
        for wrong in ((2**major, 0, 0), (1, 2**minor, 0), (1, 0, 2**patch), (-1, 0, 0), (0, 0, 5)):
            with pytest.raises(ValueError, match="number is"):
                versioning.pack_semver(*wrong, bits=bits)
        with pytest.raises(ValueError, match="packs no semantic version"):
            versioning.unpack_semver(5, bits)
        with pytest.raises(ValueError, match=f"is no number of {bits} bits"):
            versioning.unpack_semver(1 << bits, bits)
    with pytest.raises(ValueError, match="16 bits: a packed version has 64 or 32"):
        versioning.pack_semver(1, 0, 0, bits=16)


@pytest.mark.conformance("semver")
def test_the_layout_is_told_by_the_size() -> None:
    assert versioning.semver_of(0x01020159) == (1, 2, 345) == versioning.semver_of(0x0001_0002_0000_0159)
    assert versioning.semver_of(7) is None and versioning.semver_of(0) is None
