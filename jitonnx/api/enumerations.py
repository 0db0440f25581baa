"""onnxruntime's enumerations of a session's options, by its names and numbers. Those that change something say so."""

from __future__ import annotations

import enum


class Enumeration(enum.IntEnum):
    """What onnxruntime's enumerations are: members are ints and print as `Class.MEMBER` under every Python."""

    @property
    def name(self) -> str:
        """A member's name. (A property of the class, too, as in onnxruntime.)"""
        return self._name_

    @property
    def value(self) -> int:
        """A member's number."""
        return int(self)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class GraphOptimizationLevel(Enumeration):
    """How far a model is rewritten before it is planned."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Enumeration):
    """onnxruntime's switch between one node after the other and several at once; without effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Enumeration):
    """onnxruntime's order of nodes; without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtExecutionProviderDevicePolicy(Enumeration):
    """onnxruntime's preference among devices; without effect, as there is one."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6
