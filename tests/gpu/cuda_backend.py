"""The CUDA backend's C table (encoder/backend/cuda_abi.h) from Python."""
import ctypes as C
import os
import zlib

import numpy as np

BF16, FP16, FP32 = 0, 1, 2
DTYPES = {"bf16": BF16, "fp16": FP16, "fp32": FP32}
CODES = ("OK", "INVALID_ARGUMENT", "UNSUPPORTED", "RESOURCE_EXHAUSTED", "DEVICE")
WIDTH = 1280


class Error(C.Structure):
    _fields_ = [("message", C.c_char * 1024)]


class Tensor(C.Structure):
    _fields_ = [("name", C.c_char_p), ("dtype", C.c_int32), ("rank", C.c_int32), ("shape", C.c_int64 * 4),
                ("data", C.c_void_p)]


class Options(C.Structure):
    _fields_ = [("device", C.c_int32), ("compute", C.c_int32), ("sam_depth", C.c_int32), ("clip_layers", C.c_int32),
                ("global_blocks", C.POINTER(C.c_int32)), ("global_block_count", C.c_int32),
                ("sides", C.POINTER(C.c_int32)), ("side_count", C.c_int32),
                ("buckets", C.POINTER(C.c_int32)), ("bucket_count", C.c_int32), ("graphs", C.c_int32),
                ("release", C.c_void_p), ("release_context", C.c_void_p)]


class ResizeJob(C.Structure):
    _fields_ = [(name, C.c_int32) for name in ("width", "height", "side", "columns", "rows", "left", "top")]


class Item(C.Structure):
    _fields_ = [("views", C.c_void_p), ("view", C.c_int32), ("dtype", C.c_int32), ("rows", C.c_void_p),
                ("line_stride", C.c_uint64)]


class Stats(C.Structure):
    _fields_ = [("bucket", C.c_int32), ("graph", C.c_int32), ("compute_seconds", C.c_double)]


class MemoryUse(C.Structure):
    _fields_ = [("kind", C.c_char * 16), ("current", C.c_uint64), ("peak", C.c_uint64)]


class DeviceInfo(C.Structure):
    _fields_ = [("name", C.c_char * 256), ("major", C.c_int32), ("minor", C.c_int32), ("memory_total", C.c_uint64)]


class TraceStep(C.Structure):
    _fields_ = [("operation", C.c_char_p), ("algorithm", C.c_char_p), ("output", C.c_void_p), ("bytes", C.c_uint64)]


COMPUTED = C.CFUNCTYPE(None, C.c_void_p)
TRACE = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(TraceStep))

_P = C.c_void_p
_E = C.POINTER(Error)


class Api(C.Structure):
    _fields_ = [
        ("version", C.c_int32),
        ("device_count", C.CFUNCTYPE(C.c_int, C.POINTER(C.c_int32), _E)),
        ("device_info", C.CFUNCTYPE(C.c_int, C.c_int32, C.POINTER(DeviceInfo), _E)),
        ("create", C.CFUNCTYPE(C.c_int, C.POINTER(Options), C.POINTER(Tensor), C.c_int32, C.POINTER(_P), _E)),
        ("destroy", C.CFUNCTYPE(None, _P)),
        ("make_views", C.CFUNCTYPE(C.c_int, _P, _P, C.c_int32, C.c_int32, C.POINTER(ResizeJob), C.c_int32,
                                   C.POINTER(_P), _E)),
        ("view_count", C.CFUNCTYPE(C.c_int32, _P)),
        ("view_side", C.CFUNCTYPE(C.c_int32, _P, C.c_int32)),
        ("view_bytes", C.CFUNCTYPE(C.c_uint64, _P)),
        ("read_view", C.CFUNCTYPE(C.c_int, _P, C.c_int32, _P, _E)),
        ("destroy_views", C.CFUNCTYPE(None, _P)),
        ("create_slot", C.CFUNCTYPE(C.c_int, _P, C.POINTER(_P), _E)),
        ("destroy_slot", C.CFUNCTYPE(None, _P)),
        ("encode", C.CFUNCTYPE(C.c_int, _P, C.c_int32, C.POINTER(Item), C.c_int32, C.POINTER(Stats), _E)),
        ("poison", C.CFUNCTYPE(C.c_int, _P, _E)),
        ("trace", C.CFUNCTYPE(C.c_int, _P, TRACE, _P, _E)),
        ("memory", C.CFUNCTYPE(C.c_int32, _P, C.POINTER(MemoryUse), C.c_int32)),
    ]


class BackendError(RuntimeError):
    def __init__(self, code, message):
        super().__init__(f"{CODES[code]}: {message}")
        self.code = CODES[code]


def load(path=None):
    path = path or os.environ["DEEPENCODER_CUDA_LIBRARY"]
    library = C.CDLL(path)
    library.deepencoder_cuda_api.restype = C.POINTER(Api)
    api = library.deepencoder_cuda_api().contents
    assert api.version == 2, api.version
    api.encode_ahead = library.deepencoder_cuda_encode_ahead
    api.encode_ahead.argtypes = [_P, C.c_int32, C.POINTER(Item), C.c_int32, C.POINTER(Stats), COMPUTED, _P, C.POINTER(Error)]
    return api


def call(function, *arguments):
    error = Error()
    code = function(*arguments, C.byref(error))
    if code != 0:
        raise BackendError(code, error.message.decode())


def _ints(values):
    return (C.c_int32 * len(values))(*values), len(values)


class Views:
    def __init__(self, api, handle):
        self.api, self.handle = api, handle

    def __len__(self):
        return self.api.view_count(self.handle)

    def side(self, view):
        return self.api.view_side(self.handle, view)

    def read(self, view):
        side = self.side(view)
        rgb = np.empty((side, side, 3), np.uint8)
        call(self.api.read_view, self.handle, view, rgb.ctypes.data)
        return rgb

    def __del__(self):
        if self.handle:
            self.api.destroy_views(self.handle)


class Slot:
    def __init__(self, api, handle):
        self.api, self.handle = api, handle
        self.stats = Stats()

    def poison(self):
        call(self.api.poison, self.handle)

    def encode(self, side, views, dtype="fp32"):
        """views: list of (Views, index). Returns one array [c*c, 1280] a view: float32, float16, or uint16 for bf16."""
        items, rows = self._items(side, views, dtype)
        call(self.api.encode, self.handle, side, items, len(views), C.byref(self.stats))
        return rows

    def encode_ahead(self, side, views, computed, dtype="fp32"):
        """As encode; `computed` is called once the next call may begin beside this one."""
        items, rows = self._items(side, views, dtype)
        callback = COMPUTED(lambda _: computed())
        call(self.api.encode_ahead, self.handle, side, items, len(views), C.byref(Stats()), callback, None)
        return rows

    @staticmethod
    def _items(side, views, dtype):
        lines = side // 64
        kind = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}[dtype]
        rows = [np.full((lines * lines, WIDTH), 0x7FFF if kind == np.uint16 else np.nan, kind) for _ in views]
        items = (Item * len(views))()
        for item, (view_set, index), out in zip(items, views, rows):
            item.views, item.view, item.dtype = view_set.handle, index, DTYPES[dtype]
            item.rows, item.line_stride = out.ctypes.data, lines * WIDTH * out.itemsize
        return items, rows

    def trace(self, side, views, bucket):
        """Encodes without a graph. Returns (operation, algorithm, [checksum of its output for each image]) in order."""
        steps = []

        def add(_, pointer):
            step = pointer.contents
            image = step.bytes // bucket
            sums = [zlib.crc32((C.c_char * image).from_address(step.output + i * image)) for i in range(bucket)]
            steps.append((step.operation.decode(), step.algorithm.decode(), sums))

        callback = TRACE(add)  # the library holds only its address
        call(self.api.trace, self.handle, callback, None)
        try:
            self.encode(side, views)
        finally:
            call(self.api.trace, self.handle, TRACE(), None)
        return steps

    def close(self):
        if self.handle:
            self.api.destroy_slot(self.handle)
            self.handle = None

    def __del__(self):
        self.close()


class Backend:
    def __init__(self, tensors, sam_depth=12, clip_layers=24, compute="bf16", sides=(512, 640, 1024, 1280),
                 buckets=(1, 2, 4, 8, 16, 32), graphs=True, global_blocks=(2, 5, 8, 11), api=None):
        """tensors: {name: uint16 array of bf16 bits}."""
        self.api, self.handle = api or load(), None
        keep = [_ints(global_blocks), _ints(sides), _ints(buckets)]
        options = Options(0, DTYPES[compute], sam_depth, clip_layers, *keep[0], *keep[1], *keep[2], int(graphs))
        table = (Tensor * len(tensors))()
        for entry, (name, values) in zip(table, tensors.items()):
            entry.name, entry.dtype, entry.rank = name.encode(), BF16, values.ndim
            entry.shape[:values.ndim] = values.shape
            entry.data = values.ctypes.data
        handle = _P()
        call(self.api.create, C.byref(options), table, len(tensors), C.byref(handle))
        self.handle = handle

    def views(self, rgb, jobs):
        """rgb: [h, w, 3] uint8; jobs: list of ResizeJob."""
        rgb = np.ascontiguousarray(rgb)
        handle = _P()
        array = (ResizeJob * len(jobs))(*jobs)
        call(self.api.make_views, self.handle, rgb.ctypes.data, rgb.shape[1], rgb.shape[0], array, len(jobs),
             C.byref(handle))
        return Views(self.api, handle)

    def view(self, rgb):
        """A view that is already square and of the right side."""
        side = rgb.shape[0]
        return self.views(rgb, [ResizeJob(side, side, side, 1, 1, 0, 0)]), 0

    def slot(self):
        handle = _P()
        call(self.api.create_slot, self.handle, C.byref(handle))
        return Slot(self.api, handle)

    def memory(self):
        uses = (MemoryUse * 8)()
        count = self.api.memory(self.handle, uses, 8)
        return {use.kind.decode(): (use.current, use.peak) for use in uses[:count]}

    def close(self):
        if self.handle:
            self.api.destroy(self.handle)
            self.handle = None
