"""Model packages: folders with variants of models for several execution providers, as onnxruntime 1.32 has them.

manifest.json names components, each a body of JSON or the path of a file with one; their variants say for which
execution provider they are, and in `executor_info` "ort" which model of their folder is run with which options. A
reference is a path within the package, or "sha256:" with the digest of a folder of shared_assets. Packages are read;
they are made and changed by onnxruntime's own package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from jitonnx import errors
from jitonnx.api.enumerations import Enumeration
from jitonnx.api.providers import CPU

if TYPE_CHECKING:
    from jitonnx.api.options import SessionOptions
    from jitonnx.api.session import InferenceSession

MAJOR = 1
"""The version of the format that is read; minor ones add fields."""
MANIFEST, COMPONENT, ASSETS, DIGEST = "manifest.json", "component.json", "shared_assets", "sha256:"
OF_MANIFEST = (
    *("schema_version", "package_name", "package_version", "description", "layout", "components", "shared_assets"),
    "additional_metadata",
)
OF_COMPONENT = ("component_name", "variants", "additional_metadata")
OF_VARIANT = ("variant_directory", "ep", "device", "compatibility_string", "executor_info", "additional_metadata")
PATHS = ("session.model_external_initializers_file_folder_path", "ep.context_file_path")
"""Entries of a session's configuration that are references."""
WRITTEN = (
    *("session.debug_layout_transformation", "session.collect_node_memory_stats_to_file"),
    *("session.enable_profiling", "session.optimized_model_filepath"),
)
"""Entries that name files to write, which no package may do."""


class ModelPackageWriteMode(Enumeration):
    """How a package is written."""

    PRESERVE = 0
    DENSE = 1


class ModelPackage:
    """A package to look into. `open` reads one."""

    def __init__(self) -> None:
        raise errors.NotImplemented(
            "ModelPackage: packages are read (ModelPackage.open), and made by onnxruntime's own package alone"
        )

    _root: Path
    _contents: dict[str, Any] | None
    _follows: bool
    _strict: bool
    _free: bool

    @staticmethod
    def open(
        package_root: str,
        allow_external_paths: bool = False,
        follow_symlinks: bool = True,
        strict_unknown_fields: bool = True,
    ) -> ModelPackage:
        """The package in a folder. NotADirectoryError for what is none; InvalidArgument for one that breaks the rules.

        allow_external_paths: whether references may lead out of it. follow_symlinks: whether links may.
        strict_unknown_fields: whether fields that nobody knows are errors.
        """
        root = Path(package_root)
        if not root.is_dir():
            raise NotADirectoryError(f"package_root '{package_root}' is not a directory.")
        made = ModelPackage.__new__(ModelPackage)
        made._root, made._follows = root, follow_symlinks
        made._strict, made._free = strict_unknown_fields, allow_external_paths
        made._read()
        return made

    def _read(self) -> None:
        path = self._root / MANIFEST
        manifest = _json(path)
        self._contents = self._checked(manifest, OF_MANIFEST, "manifest")
        version = manifest.get("schema_version")
        if version is None:
            raise errors.InvalidArgument("manifest: missing required 'schema_version'.")
        numbers = f"{version}.0".split(".")[:2]
        if not all(number.isdigit() for number in numbers):
            raise errors.InvalidArgument(f"manifest: schema_version is {version!r}; '<major>.<minor>' is needed.")
        self._version = int(numbers[0]), int(numbers[1])
        if self._version[0] != MAJOR:
            raise errors.InvalidArgument(
                f"manifest: schema_version major {numbers[0]} is not supported (this build supports major {MAJOR})."
            )
        if not isinstance(manifest.get("components"), dict):
            raise errors.InvalidArgument("manifest: missing required 'components' object.")
        self._free = self._free or manifest.get("layout", "portable") == "installed"
        found = sorted((self._root / ASSETS).glob("sha256-*"))
        self._assets = {uri: self._path(self._root, path) for uri, path in manifest.get("shared_assets", {}).items()}
        for folder in found:
            self._assets.setdefault(folder.name.replace("-", ":", 1), folder)
        self._components: dict[str, tuple[dict[str, Any], Path]] = {}
        for name, given in manifest["components"].items():
            self._components[name] = self._component(name, given)

    def _component(self, name: str, given: Any) -> tuple[dict[str, Any], Path]:
        """A component's body and the folder that it is read from."""
        place = self._root
        if isinstance(given, str):
            path = self._path(self._root, given, must_exist=True)
            path = path / COMPONENT if path.is_dir() else path
            given, place = _json(path), path.parent
        body = self._checked(given, OF_COMPONENT, f"component '{name}'")
        if not isinstance(body.get("variants"), dict):
            raise errors.InvalidArgument(f"component '{name}': missing required 'variants' object.")
        for each, variant in body["variants"].items():
            self._checked(variant, OF_VARIANT, f"variant '{each}'")
            if "variant_directory" in variant:
                self._path(place, variant["variant_directory"], must_exist=True)
        return body, place

    def _checked(self, body: Any, known: tuple[str, ...], what: str) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise errors.InvalidArgument(f"{what}: an object is needed.")
        unknown = [name for name in body if name not in known]
        if unknown and self._strict:
            raise errors.InvalidArgument(f"{what}: unknown field '{unknown[0]}'.")
        return body

    def _path(self, base: Path, text: str, *, must_exist: bool = False) -> Path:
        """The path that a reference leads to. InvalidArgument for one that the package's layout does not allow."""
        given = PurePosixPath(text)
        if not self._free:
            if given.is_absolute():
                raise errors.InvalidArgument(
                    f"ResolvePath: absolute or drive-rooted path '{text}' is not allowed in portable layout."
                )
            if ".." in given.parts:
                raise errors.InvalidArgument(
                    f"ResolvePath: '..' segments are not allowed in portable layout: '{text}'."
                )
        path = base / given
        if not self._free and not path.resolve().is_relative_to(self._root.resolve()):
            raise errors.InvalidArgument(f"ResolvePath: '{path}' is outside the package.")
        if not self._follows and path.is_symlink():
            raise errors.InvalidArgument(f"ResolvePath: '{path}' is a link.")
        if must_exist and not path.exists():
            raise errors.NoSuchFile(f"ResolvePath: '{path}' does not exist.")
        return path

    def _opened(self) -> dict[str, Any]:
        if self._contents is None:
            raise errors.InvalidArgument("Model package is closed.")
        return self._contents

    def _variant(self, component_name: str, variant_name: str) -> tuple[dict[str, Any], Path]:
        """A variant's body and its folder."""
        body, place = self._body(component_name)
        if variant_name not in body["variants"]:
            raise FileNotFoundError(f"variant '{variant_name}' not found in component '{component_name}'.")
        variant = body["variants"][variant_name]
        return variant, self._path(place, variant.get("variant_directory", variant_name))

    def _body(self, component_name: str) -> tuple[dict[str, Any], Path]:
        self._opened()
        if component_name not in self._components:
            raise FileNotFoundError(f"component '{component_name}' not found.")
        return self._components[component_name]

    def executor(self, component_name: str, variant_name: str, name: str) -> dict[str, Any]:
        """What a variant tells a consumer of packages."""
        variant, folder = self._variant(component_name, variant_name)
        given = variant.get("executor_info", {}).get(name, {})
        body: dict[str, Any] = _json(self._path(folder, given, must_exist=True)) if isinstance(given, str) else given
        return body

    def get_info(self) -> dict[str, Any]:
        """All that the package says of itself."""
        manifest = self._opened()
        return {
            "schema_version_major": self._version[0],
            "schema_version_minor": self._version[1],
            "package_name": manifest.get("package_name"),
            "package_version": manifest.get("package_version"),
            "description": manifest.get("description"),
            "layout": manifest.get("layout", "portable"),
            "additional_metadata_json": _text(manifest, "additional_metadata"),
            "components": [
                {
                    "name": name,
                    "additional_metadata_json": _text(body, "additional_metadata"),
                    "variants": [self._variant_info(name, variant) for variant in body["variants"]],
                }
                for name, (body, _) in self._components.items()
            ],
            "shared_assets": [{"uri": uri, "resolved_path": str(path)} for uri, path in self._assets.items()],
        }

    def _variant_info(self, component: str, name: str) -> dict[str, Any]:
        variant, folder = self._variant(component, name)
        executors = {each: self.executor(component, name, each) for each in variant.get("executor_info", {})}
        return {
            "name": name,
            "variant_directory": str(folder) if folder.is_dir() else None,
            **{key: variant.get(key) for key in ("ep", "device", "compatibility_string")},
            "additional_metadata_json": _text(variant, "additional_metadata"),
            "executor_info": {each: _text(executors, each) for each in executors},
        }

    def get_component_json(self, component_name: str) -> str:
        """A component's body. FileNotFoundError for an unknown name."""
        return _dense(self._body(component_name)[0])

    def get_variant_json(self, component_name: str, variant_name: str) -> str:
        """A variant's body. FileNotFoundError for unknown names."""
        return _dense(self._variant(component_name, variant_name)[0])

    def resolve_asset_uri(self, uri: str) -> str:
        """The folder of a shared asset. FileNotFoundError for an unknown one."""
        self._opened()
        if uri not in self._assets:
            raise FileNotFoundError(f"Asset URI not declared in this package: '{uri}'.")
        return str(self._assets[uri])

    def resolve_string_ref(self, string_ref: str, base_dir: str | None = None, must_exist: bool = False) -> str:
        """The path that a reference leads to, by default from the package's folder on."""
        self._opened()
        if re.match(DIGEST + "[0-9a-f]{64}(/|$)", string_ref):
            uri, _, inner = string_ref.partition("/")
            folder = Path(self.resolve_asset_uri(uri))
            return str(self._path(folder, inner, must_exist=must_exist) if inner else folder)
        return str(self._path(self._root if base_dir is None else Path(base_dir), string_ref, must_exist=must_exist))

    @staticmethod
    def compute_directory_hash(source_dir: str) -> str:
        """The reference of a folder: the digest of its files' digests and names. InvalidArgument for links."""
        root, lines = Path(source_dir), []
        if not root.is_dir():
            raise FileNotFoundError(f"ComputeDirectoryHash: '{source_dir}' is not a directory.")
        for path in root.rglob("*"):
            if path.is_symlink():
                raise errors.InvalidArgument(f"ComputeDirectoryHash: '{path}' is a link.")
            if path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                lines.append((path.relative_to(root).as_posix(), digest))
        text = "".join(f"{digest}  {name}\n" for name, digest in sorted(lines))
        return DIGEST + hashlib.sha256(text.encode()).hexdigest()

    def close(self) -> None:
        """Let the package go."""
        self._contents = None

    def __enter__(self) -> ModelPackage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unchanged(self, *_: Any, **__: Any) -> NoReturn:
        """NotImplemented: packages are changed by onnxruntime's own package."""
        raise errors.NotImplemented("ModelPackage: packages are read here, and changed by onnxruntime's own package")

    add_shared_asset = commit = prune = remove_component = remove_shared_asset = remove_variant = _unchanged
    remove_variant_executor_info = set_additional_metadata_json = set_component_external = _unchanged
    set_component_inline = set_layout = set_metadata = set_variant = _unchanged
    set_variant_executor_info_external = set_variant_executor_info_inline = _unchanged


class ModelPackageOptions:
    """The execution providers that a variant is chosen for: the CPU's, the only one."""

    def __init__(self, sess_options: SessionOptions) -> None:
        self.providers = (CPU,)


class ModelPackageContext:
    """The package in a folder, of which sessions are made. Fail for one that breaks the rules."""

    def __init__(self, package_root: str | os.PathLike[str]) -> None:
        try:
            self.package = ModelPackage.open(os.fspath(package_root))
        except (OSError, ValueError) as error:
            raise errors.Fail(f"Failed to open model package at '{os.fspath(package_root)}': {error}") from error
        self._info = self.package.get_info()

    def _variants(self, component_name: str) -> list[Mapping[str, Any]]:
        for component in self._info["components"]:
            if component["name"] == component_name:
                found: list[Mapping[str, Any]] = component["variants"]
                return found
        raise errors.Fail(f"Component '{component_name}' is not in the model package.")

    def get_schema_version(self) -> int:
        """The major version of the format."""
        version: int = self._info["schema_version_major"]
        return version

    def get_component_count(self) -> int:
        """How many components there are."""
        return len(self._info["components"])

    def get_component_names(self) -> list[str]:
        """Their names."""
        return [component["name"] for component in self._info["components"]]

    def get_variant_count(self, component_name: str) -> int:
        """How many variants a component has. Fail for an unknown name."""
        return len(self._variants(component_name))

    def get_variant_names(self, component_name: str) -> list[str]:
        """Their names."""
        return [variant["name"] for variant in self._variants(component_name)]

    def get_variant_ep_name(self, component_name: str, variant_name: str) -> str | None:
        """The execution provider that a variant is for, if it says so."""
        for variant in self._variants(component_name):
            if variant["name"] == variant_name:
                provider: str | None = variant["ep"]
                return provider
        raise errors.Fail(f"Variant '{variant_name}' is not in component '{component_name}' of the model package.")

    def resolve_string_ref(self, string_ref: str, base_dir: str | None = None, must_exist: bool = False) -> str:
        """`ModelPackage.resolve_string_ref`. Fail for what cannot be."""
        try:
            return self.package.resolve_string_ref(string_ref, base_dir, must_exist)
        except (OSError, ValueError) as error:
            raise errors.Fail(f"Failed to resolve '{string_ref}' in model package: {error}") from error

    def select_component(self, component_name: str, options: ModelPackageOptions) -> ModelPackageComponentContext:
        """The first variant of a component that is for the CPU. Fail if there is none."""
        for variant in self._variants(component_name):
            if variant["ep"] in options.providers and variant["device"] in (None, "cpu"):
                return ModelPackageComponentContext(self, component_name, variant)
        raise errors.Fail("No suitable model variant found for the configured execution providers.")


class ModelPackageComponentContext:
    """A variant that was chosen: `ModelPackageContext.select_component` gives it."""

    def __init__(self, context: ModelPackageContext, component: str, variant: Mapping[str, Any]) -> None:
        self._context, self._component, self._chosen = context, component, variant

    def get_selected_variant_name(self) -> str:
        """Its name."""
        name: str = self._chosen["name"]
        return name

    def get_selected_variant_folder_path(self) -> str:
        """Its folder. Fail if there is none."""
        folder: str | None = self._chosen["variant_directory"]
        if folder is None:
            raise errors.Fail(f"Selected variant '{self.get_selected_variant_name()}' has no folder.")
        return folder

    def create_session(self, sess_options: SessionOptions | None = None) -> InferenceSession:
        """A session for the variant's model.

        sess_options: taken as they are, but for paths that the package names and they do not; None: the package's.
        Fail for a variant without a model.
        """
        from jitonnx.api.arguments import own_options
        from jitonnx.api.session import InferenceSession

        name = self.get_selected_variant_name()
        told = self._context.package.executor(self._component, name, "ort")
        if "model_file" not in told:
            raise errors.Fail(
                f'Selected variant \'{name}\' has no executor_info["ort"]["model_file"]. Component: {self._component}'
            )
        entries = dict(told.get("session_options", {}))
        if forbidden := [key for key in entries if key in WRITTEN]:
            raise errors.Fail(f"Selected variant '{name}' sets {forbidden[0]!r}, which no model package may.")
        folder = self.get_selected_variant_folder_path()
        options = own_options(sess_options)
        for key, value in entries.items():
            if key in PATHS:
                if options.entry(key) is None:
                    path = self._context.resolve_string_ref(value, folder, must_exist=True)
                    options.add_session_config_entry(key, path)
            elif sess_options is None:
                options.add_session_config_entry(key, value)
        return InferenceSession(self._context.resolve_string_ref(told["model_file"], folder, must_exist=True), options)

    _create_session = create_session


def _json(path: Path) -> Any:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise errors.NoSuchFile(f"Cannot open file: '{path}': {error.strerror}") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise errors.InvalidArgument(f"Failed to parse JSON at '{path}'.") from error


def _dense(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _text(body: Mapping[str, Any], key: str) -> str | None:
    return _dense(body[key]) if key in body else None
