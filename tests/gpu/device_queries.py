"""What the CUDA driver and NVML say about a GPU's memory, from Python, with nothing but the driver's own libraries."""
import ctypes as C


def _check(code, call):
    if code != 0:
        raise RuntimeError(f"{call}: error {code}")


class Cuda:
    """The driver API. Makes this process' primary context of the device, which takes memory itself."""

    def __init__(self, device=0, library="libcuda.so.1"):
        self.driver = C.CDLL(library)
        handle, context, bus_id = C.c_int(), C.c_void_p(), C.create_string_buffer(32)
        _check(self.driver.cuInit(0), "cuInit")
        _check(self.driver.cuDeviceGet(C.byref(handle), device), "cuDeviceGet")
        _check(self.driver.cuDeviceGetPCIBusId(bus_id, len(bus_id), handle), "cuDeviceGetPCIBusId")
        _check(self.driver.cuDevicePrimaryCtxRetain(C.byref(context), handle), "cuDevicePrimaryCtxRetain")
        self.context, self.pci_bus_id = context, bus_id.value.decode()
        self.free()

    def free(self):
        """Bytes that no process holds: cuMemGetInfo, which cudaMemGetInfo is made of. From any thread."""
        free, total = C.c_size_t(), C.c_size_t()
        _check(self.driver.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")
        _check(self.driver.cuMemGetInfo_v2(C.byref(free), C.byref(total)), "cuMemGetInfo")
        return free.value


class _ProcessInfo(C.Structure):
    _fields_ = [("pid", C.c_uint), ("used", C.c_ulonglong), ("gpu_instance", C.c_uint), ("compute_instance", C.c_uint)]


class Nvml:
    """NVML's view of processes, as nvidia-smi shows it."""

    def __init__(self, pci_bus_id, library="libnvidia-ml.so.1"):
        self.nvml, self.device = C.CDLL(library), C.c_void_p()
        _check(self.nvml.nvmlInit_v2(), "nvmlInit")
        _check(self.nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), C.byref(self.device)),
               "nvmlDeviceGetHandleByPciBusId")

    def process_bytes(self, pid):
        """Bytes that the process holds; None where the driver does not say (another namespace of processes, for one)."""
        count = C.c_uint(256)
        infos = (_ProcessInfo * count.value)()
        if self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.device, C.byref(count), infos) != 0:
            return None
        used = [info.used for info in infos[:count.value] if info.pid == pid]
        unknown = C.c_ulonglong(-1).value  # NVML_VALUE_NOT_AVAILABLE
        return used[0] if used and used[0] != unknown else None
