"""Versions as ONNX counts them: which version of an operator an operator set means, and SemVer in one number.

    operator_version("ReduceSum", 12)         # 11: of ONNX's set 12
    operator_versions(21)["Softmax"]          # 13
    pack_semver(1, 2, 345, bits=32)           # 0x01020159
    unpack_semver(0x01020159, bits=32)        # SemVer(major=1, minor=2, patch=345)

The database is that of `jitonnx/ops/*/schemas.py`, which `python -m jitonnx.ops.generate` writes from ONNX's schemas.
"""

from __future__ import annotations

from jitonnx.ir.schema import lines_in, schemas_in
from jitonnx.ops.registry import FOLDERS, Registry, canonical
from jitonnx.ops.registry import registry as default_registry
from jitonnx.support.records import NamedTuple

LAYOUTS = {64: (16, 16, 32), 32: (8, 8, 16)}
"""The keys are the bits of a packed SemVer, the values those of its parts. The IR specification has 64, the versioning
rules have 32."""


class SemVer(NamedTuple):
    """A semantic version."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def pack_semver(major: int, minor: int, patch: int, bits: int = 64) -> int:
    """A semantic version as one number, as `model_version` holds it: of 64 bits with a sign, or of 32 bits without.

    bits: 64 (16 for the major number, 16 for the minor one, 32 for the patch) or 32 (8, 8 and 16). ValueError for a
    part that is negative or too large, and for a version whose major and minor number are both 0, which ONNX does not
    allow.
    """
    packed = 0
    for name, part, width in zip(SemVer._fields, (major, minor, patch), _layout(bits), strict=True):
        if not 0 <= part < 1 << width:
            raise ValueError(f"the {name} number is {part}; {bits} bits have room for 0 to {(1 << width) - 1}")
        packed = packed << width | part
    if not (major or minor):
        raise ValueError(f"version 0.0.{patch}: the major or the minor number is not 0 in a packed version")
    return packed - (1 << 64) if packed >> 63 else packed


def unpack_semver(value: int, bits: int = 64) -> SemVer:
    """The semantic version that a number packs. ValueError for one that packs none: see `pack_semver`."""
    if not (-(1 << 63) if bits == 64 else 0) <= value < 1 << bits:
        raise ValueError(f"{value} is no number of {bits} bits")
    rest, parts = value % (1 << 64), []
    for width in reversed(_layout(bits)):
        parts.append(rest % (1 << width))
        rest >>= width
    version = SemVer(*reversed(parts))
    if not (version.major or version.minor):
        raise ValueError(f"{value} packs no semantic version of {bits} bits: its major and minor number are 0")
    return version


def semver_of(value: int) -> SemVer | None:
    """The semantic version that a model's version packs, in the layout that its size tells; None for a plain number.

    A number below 2**16 is a plain one in both layouts, one below 2**32 in that of 64 bits.
    """
    for bits in (64, 32):
        try:
            return unpack_semver(value, bits)
        except ValueError:
            continue
    return None


def _layout(bits: int) -> tuple[int, int, int]:
    if bits not in LAYOUTS:
        raise ValueError(f"{bits} bits: a packed version has {' or '.join(map(str, LAYOUTS))}")
    return LAYOUTS[bits]


def operator_version(name: str, opset: int, domain: str = "", registry: Registry = default_registry) -> int | None:
    """The version of the operator `name` that operator set `opset` means: in which it changed last, up to the set's.

    None for an operator that the set does not have: nobody knows it, it came later, or it was dropped. domain: "" and
    "ai.onnx" are the same; those of operator-set documents and operators in Python that are registered (in registry)
    are known, too.
    """
    domain = canonical(domain)
    if domain in FOLDERS:
        versions = [each for each in schemas_in(_folder(domain), domain, name) if each.version <= opset]
        if versions:
            return None if versions[-1].deprecated else versions[-1].version
    found = registry.signature(domain, name, opset)
    return None if found is None or found.deprecated or found.version > opset else found.version


def operator_versions(opset: int, domain: str = "", registry: Registry = default_registry) -> dict[str, int]:
    """The version of each operator that the set `opset` of a domain has, by name, with those of a registry: see
    `operator_version`."""
    domain = canonical(domain)
    names = lines_in(_folder(domain)) if domain in FOLDERS else ()
    found = {name: operator_version(name, opset, domain, registry) for name in [*names, *registry.names(domain)]}
    return {name: version for name, version in sorted(found.items()) if version is not None}


def newest_opset(domain: str = "", registry: Registry = default_registry) -> int | None:
    """The newest version of a domain's operator set that models may import; None for a domain that nobody knows, or of
    which only operators in Python are registered: any version may be imported of these."""
    known = registry.domain(domain)
    return None if known is None else known.newest


def _folder(domain: str) -> str:
    return f"jitonnx.ops.{FOLDERS[domain]}"
