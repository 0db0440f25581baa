"""What Numba compiled, as an LLVM module of one C function with all that it calls written into it."""

from __future__ import annotations

from typing import Any

from jitonnx.codegen.functions.translation import MATHEMATICS
from jitonnx.ir.computation.linked import SYMBOL
from jitonnx.ir.errors import FunctionError

_PASSES = (
    *("always_inliner", "global_dead_code_eliminate", "sroa", "simplify_cfg", "instruction_combine", "new_gvn", "sccp"),
    *("simplify_cfg", "instruction_combine", "simplify_cfg", "global_dead_code_eliminate", "instruction_namer"),
)
"""They are thorough: what Numba does where Python would raise an exception has to be seen to be out of reach."""


_MEANINGS = {"NRT_": "memory that it allocates", "Py": "Python objects"}
"""What functions stand for whose names begin so; others, as numba_gamma, tell it themselves."""
_NUMBERS = "a compiled function computes with numbers and `math` alone, and raises no exceptions"


def c_function(text: str, name: str, allowed: str = _NUMBERS) -> Any:
    """The C function in a module of Numba's, by llvmlite. Its name is `SYMBOL`; all else is written into it.

    text: of the module, in which one function is a C wrapper. name: what it is for whoever wrote it. allowed: what it
    may do, for the error where it does more.

    Raises: FunctionError where llvmlite cannot read it, or where the function needs more than numbers and the C
    library's mathematics.
    """
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(text.replace("noinline", "nounwind"))  # of what a C function calls
    except RuntimeError as error:
        import numba

        raise FunctionError(
            f"llvmlite does not read the LLVM IR that Numba {numba.__version__} made of {name}: {error}. Install "
            "versions that go together"
        ) from error
    entry = None
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.name.startswith("cfunc."):
            entry = function
        else:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    assert entry is not None, "Bug: Numba has made no C function"
    entry.name = SYMBOL
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    machine = llvm.Target.from_triple(module.triple).create_target_machine()
    passes = llvm.create_new_module_pass_manager()
    for step in _PASSES:
        getattr(passes, f"add_{step}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
    called = {one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")}
    strange = {one for one in called if not MATHEMATICS & {one, one.removesuffix("f")}}
    if strange or list(module.global_variables):
        needed = sorted(
            {next((text for start, text in _MEANINGS.items() if one.startswith(start)), one) for one in strange}
        )
        raise FunctionError(
            f"{name} needs {', '.join(needed) or 'a table of constants, or other memory of its own'}: {allowed}"
        )
    return entry
