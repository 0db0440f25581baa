"""Devices and their memory, under onnxruntime's names. There is one, the CPU; others can be named, and not used."""

from __future__ import annotations

import operator
import platform
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jitonnx.api.enumerations import Enumeration
from jitonnx.api.providers import CPU
from jitonnx.support.records import NamedTuple


class OrtAllocatorType(Enumeration):
    """Kinds of onnxruntime's allocators; without effect."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class ArenaExtendStrategy(Enumeration):
    """How onnxruntime's arenas grow; without effect."""

    kNextPowerOfTwo = 0
    kSameAsRequested = 1


class OrtMemType(Enumeration):
    """Memory of an execution provider, or of the CPU for it; here both are the same."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(Enumeration):
    """A device's own memory, or what the host can read of it; here both are the same."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(Enumeration):
    """Kinds of devices with memory."""

    CPU = 0
    GPU = 1
    NPU = 3
    FPGA = 2


class OrtHardwareDeviceType(Enumeration):
    """Kinds of devices that compute."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(Enumeration):
    """Makers of devices, by their PCI numbers."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_CPU, _GPU, _FPGA, _NPU, _DML = range(5)
_TYPES = {"cpu": _CPU, "cuda": _GPU, "cann": _NPU, "dml": _DML, "webgpu": _GPU, "gpu": _GPU, "npu": _NPU}
"""onnxruntime's numbers of device types, by the names that users give."""
_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
    "webgpu": OrtDeviceVendorId.NONE,
}
_MEMORY_NAMES = {"Cpu": _CPU, "Cuda": _GPU, "CudaPinned": _CPU, "Cann": _NPU, "CannPinned": _CPU, "DML": _DML}
"""Device types by the names of memory that `OrtMemoryInfo` takes."""


def get_ort_device_type(device_type: str) -> int:
    """onnxruntime's number of a type of devices, "cpu" or "cuda" for instance. Exception for names that it lacks."""
    if device_type not in _TYPES:
        raise Exception(f"Unsupported device type: {device_type}")
    return _TYPES[device_type]


def get_vendor_id_for_device_type(device_type: str) -> OrtDeviceVendorId | None:
    """The maker of the devices of a type that has one maker only; NONE for "webgpu", None for other types."""
    return _VENDORS.get(device_type)


class OrtDevice:
    """A device: a type of devices, a kind of its memory, its maker, and its number among those of the type.

    OrtDevice(type, memory, number), OrtDevice(type, memory, vendor, number), or the same as another OrtDevice. `make`
    takes names. onnxruntime has an outer and an inner class of this name; here they are one.
    """

    _numbers: tuple[int, int, int, int]

    def __init__(self, device_type: int | OrtDevice, *numbers: int) -> None:
        if isinstance(device_type, OrtDevice):
            self._numbers = device_type._numbers
            return
        if len(numbers) not in (2, 3) or not all(hasattr(number, "__index__") for number in (device_type, *numbers)):
            raise TypeError("an OrtDevice is made of a type, memory, (a vendor,) and a number, or of an OrtDevice")
        memory, vendor, number = numbers if len(numbers) == 3 else (numbers[0], 0, numbers[1])
        if device_type == _DML:  # which are the GPUs of a maker, so to say
            device_type, vendor = _GPU, OrtDeviceVendorId.MICROSOFT
        self._numbers = (int(device_type), int(memory), int(vendor), int(number))

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of this name: "cpu", "cuda", "gpu" and so on. Exception for names that onnxruntime lacks."""
        kind = get_ort_device_type(ort_device_name)
        vendor = _VENDORS.get(ort_device_name, OrtDeviceVendorId.NONE) if vendor_id < 0 else vendor_id
        return OrtDevice(kind, 0, int(vendor), device_id)

    def device_type(self) -> int:
        """0 for a CPU."""
        return self._numbers[0]

    def device_mem_type(self) -> int:
        """0 for its own memory."""
        return self._numbers[1]

    def device_vendor_id(self) -> int:
        """Its maker's PCI number; 0 where that is not told."""
        return self._numbers[2]

    def device_id(self) -> int:
        """Its number among those of its type."""
        return self._numbers[3]

    mem_type = device_mem_type
    vendor_id = device_vendor_id

    def _get_c_device(self) -> OrtDevice:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtDevice) and self._numbers == other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __repr__(self) -> str:
        return f"OrtDevice{self._numbers}"

    @staticmethod
    def cpu() -> int:
        """The number of CPUs' type."""
        return _CPU

    @staticmethod
    def cuda() -> int:
        """The number of GPUs' type."""
        return _GPU

    gpu = webgpu = cuda

    @staticmethod
    def fpga() -> int:
        """The number of FPGAs' type."""
        return _FPGA

    @staticmethod
    def npu() -> int:
        """The number of neural processors' type."""
        return _NPU

    cann = npu

    @staticmethod
    def dml() -> int:
        """The number of DirectML's type."""
        return _DML

    @staticmethod
    def default_memory() -> int:
        """The number of a device's own memory."""
        return 0


def cpu_alone(device: str | OrtDevice, device_id: int = 0, vendor_id: int = -1) -> None:
    """RuntimeError if the device is not a CPU; Exception for names that onnxruntime lacks."""
    made = device if isinstance(device, OrtDevice) else OrtDevice.make(device, device_id, vendor_id)
    if made.device_type() != _CPU:
        what = repr(device) if isinstance(device, str) else device
        raise RuntimeError(
            f"Can't allocate memory on the device using this package: jitonnx has the CPU's memory alone, and not that "
            f"of {what}. Give 'cpu'"
        )


class OrtMemoryInfo:
    """A kind of memory. RuntimeError for a name that onnxruntime lacks; `create_v2` takes any."""

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        if name not in _MEMORY_NAMES:
            raise RuntimeError(f"Specified device is not supported. Try CreateMemoryInfo_V2. (It is {name!r}.)")
        self._told = (name, allocator_type, device_id, mem_type, OrtDeviceMemoryType.DEFAULT, 0)
        self._is_the_cpu = _MEMORY_NAMES[name] == _CPU

    @classmethod
    def create_v2(
        cls,
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Memory of any name."""
        made = cls("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        made._told = (name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id)
        made._is_the_cpu = device_type == OrtMemoryInfoDeviceType.CPU
        return made

    def check_cpu(self) -> None:
        """RuntimeError if it is not the CPU's. (Not in onnxruntime.)"""
        if not self._is_the_cpu:
            raise RuntimeError(
                f"No shared allocator found for: OrtMemoryInfo:[name:{self.name}]: jitonnx has the CPU's memory alone"
            )

    @property
    def name(self) -> str:
        """What it is called."""
        return self._told[0]

    @property
    def allocator_type(self) -> OrtAllocatorType:
        """The kind of allocator that gives it."""
        return self._told[1]

    @property
    def device_id(self) -> int:
        """The number of the device among those of its type."""
        return self._told[2]

    @property
    def mem_type(self) -> OrtMemType:
        """Whose memory it is."""
        return self._told[3]

    @property
    def device_mem_type(self) -> OrtDeviceMemoryType:
        """Whether the host can read it."""
        return self._told[4]

    @property
    def device_vendor_id(self) -> int:
        """The PCI number of the device's maker."""
        return self._told[5]


class OrtArenaCfg:
    """Settings of an arena of onnxruntime's: kept, without effect. Four numbers, or a dict of them; -1: not given."""

    max_mem: int = 0
    arena_extend_strategy: int = -1
    initial_chunk_size_bytes: int = -1
    max_dead_bytes_per_chunk: int = -1
    initial_growth_chunk_size_bytes: int = -1
    max_power_of_two_extend_bytes: int = -1

    _NAMES = (
        "max_mem",
        "arena_extend_strategy",
        "initial_chunk_size_bytes",
        "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes",
        "max_power_of_two_extend_bytes",
    )

    def __init__(self, max_mem: int | Mapping[str, int], *others: int) -> None:
        given = max_mem if isinstance(max_mem, Mapping) else dict(zip(self._NAMES, (max_mem, *others), strict=False))
        if unknown := sorted(set(given) - set(self._NAMES)):
            raise RuntimeError(f"Invalid OrtArenaCfg option: {unknown[0]}; there are {', '.join(self._NAMES)}")
        for name, value in given.items():
            setattr(self, name, operator.index(value))


def create_and_register_allocator(memory: OrtMemoryInfo, arena: OrtArenaCfg | None) -> None:
    """Accepted, without effect: sessions share memory as it is."""


def create_and_register_allocator_v2(
    provider: str, memory: OrtMemoryInfo, options: Mapping[str, str], arena: OrtArenaCfg | None
) -> None:
    """Accepted, without effect: sessions share memory as it is."""


class OrtHardwareDevice:
    """What computes: this machine's CPU."""

    type = OrtHardwareDeviceType.CPU
    vendor_id = int(OrtDeviceVendorId.NONE)
    device_id = 0

    @property
    def vendor(self) -> str:
        """The CPU's architecture: its maker is not asked for."""
        return platform.machine()

    @property
    def metadata(self) -> dict[str, str]:
        """Nothing."""
        return {}


class OrtEpDevice:
    """An execution provider on a device: the CPU's on the CPU."""

    ep_name = CPU
    ep_vendor = "jitonnx"
    device = OrtHardwareDevice()

    @property
    def ep_metadata(self) -> dict[str, str]:
        """Nothing."""
        return {}

    @property
    def ep_options(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> None:
        """None, as onnxruntime has it for the CPU."""

    def create_sync_stream(self, *_: Any) -> NoReturn:
        """RuntimeError: a CPU has no streams."""
        raise RuntimeError("a CPU has no streams to synchronise with")


class OrtEpAssignedNode(NamedTuple):
    """A node that an execution provider runs."""

    name: str
    domain: str
    op_type: str


class OrtEpAssignedSubgraph:
    """Nodes that an execution provider runs."""

    def __init__(self, nodes: Sequence[OrtEpAssignedNode]) -> None:
        self._nodes = list(nodes)

    @property
    def ep_name(self) -> str:
        """The execution provider: the CPU's."""
        return CPU

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self._nodes)


_DEVICE = OrtEpDevice()


def get_ep_devices() -> list[OrtEpDevice]:
    """The execution providers and their devices: the CPU's."""
    return [_DEVICE]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The devices: the CPU."""
    return [_DEVICE.device]


def cpu_memory() -> OrtMemoryInfo:
    """The memory that inputs and outputs lie in."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)
