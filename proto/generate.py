"""Regenerate the Python modules of the schema `onnx.proto`: `*_pb2.py`, `*_pb2.pyi`, and
`schemas.py`, which holds the schemas alone.

    python proto/generate.py            write the files
    python proto/generate.py --check    only say whether they are up to date (exit status 1 if not)

The compiler is fixed, and deliberately old. Generated code runs with protobuf run-times of its own version and newer;
from protobuf 5 on it also checks that at import, and warns when the run-time is a major version ahead. What the
compiler of protobuf 4.25 writes is the same program without that check, so one generated file serves every protobuf
from 4.25 on.

grpcio-tools is the form in which PyPI carries the compiler. It is installed in a throw-away virtual environment,
because this old release pins protobuf below 5. It has wheels for Python 3.10 to 3.12: run the script with one of these.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMPILER = "grpcio-tools==1.62.3"  # protoc 25.1
FOLDER = Path(__file__).resolve().parent
SCHEMAS = ("onnx",)
GENERATED = tuple(f"{schema}_pb2.{suffix}" for schema in SCHEMAS for suffix in ("py", "pyi"))


def install_compiler(folder: Path) -> Path:
    """Make a virtual environment with the compiler in `folder`; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", COMPILER], check=True)
    return python


def generate(scratch: Path) -> dict[str, str]:
    """Compile the schemas within `scratch` and return the generated texts by file name."""
    # The path below the include folder becomes the name under which protobuf's global pool knows a file, so it has to
    # be ours alone: ONNX's own files are registered there as "onnx/...".
    package = scratch / "include" / "jitonnx" / "proto"
    output = scratch / "output"
    package.mkdir(parents=True)
    output.mkdir()
    sources = [package / f"{schema}.proto" for schema in SCHEMAS]
    for source in sources:
        source.write_text((FOLDER / source.name).read_text(encoding="utf-8"), encoding="utf-8")
    python = install_compiler(scratch / "venv")
    subprocess.run(
        [
            *(python, "-m", "grpc_tools.protoc"),
            f"--proto_path={scratch / 'include'}",
            f"--python_out={output}",
            f"--pyi_out={output}",
            *map(str, sources),
        ],
        check=True,
    )
    texts = {name: (output / "jitonnx" / "proto" / name).read_text(encoding="utf-8") for name in GENERATED}
    return texts | {"schemas.py": schemas(texts)}


def schemas(texts: dict[str, str]) -> str:
    """The module that holds the serialised schemas, as they stand in the generated modules."""
    lines = ['"""The schemas as serialised `FileDescriptorProto`s. Written by generate.py: do not edit."""', ""]
    for schema in SCHEMAS:
        calls = (node for node in ast.walk(ast.parse(texts[f"{schema}_pb2.py"])) if isinstance(node, ast.Call))
        (data,) = (
            ast.literal_eval(call.args[0])
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "AddSerializedFile"
        )
        digits = data.hex()
        parts = [digits[start : start + 112] for start in range(0, len(digits), 112)]
        lines += [f'{schema.upper()} = bytes.fromhex("""', *parts, '""")']
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Regenerate the Python modules of the schemas.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files are out of date")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        texts = generate(Path(scratch))
    stale = []
    for name, text in texts.items():
        path = FOLDER / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    print(("out of date: " if check else "written: ") + ", ".join(stale) if stale else "up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
