"""What goes wrong between a library and us: onnxruntime's codes, and the errors that they are here."""

from __future__ import annotations

from jitonnx import errors

FAIL, INVALID_ARGUMENT, NOT_IMPLEMENTED = 1, 2, 9

_BY_CODE = {kind.code: kind for kind in errors.Error.__subclasses__()}


class Refused(Exception):
    """A library asks for what there is not; it gets a status with the text. Also what a library refuses itself."""

    def __init__(self, text: str, code: int = INVALID_ARGUMENT) -> None:
        super().__init__(text)
        self.text, self.code = text, code

    def error(self, text: str) -> errors.Error:
        """The error of the status's kind, for who uses jitonnx, with a text that says more."""
        return _BY_CODE.get(self.code, errors.Fail)(text)
