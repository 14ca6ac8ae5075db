"""The encoder without the service around it: what service_gpu.py compares the service's images/s with."""
import ctypes
import json
import mmap
import pathlib
import struct
import subprocess
import sys
import threading
import time

from service_tools import ROOT

WIDTH = 1280


def tensors_of(model):
    """{name: array of bf16 bits} of a checkpoint's *.safetensors, mapped and not read."""
    import numpy
    tensors = {}
    for path in sorted(pathlib.Path(model).glob("*.safetensors")):
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        for name, tensor in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, end = tensor["data_offsets"]
                tensors[name] = numpy.frombuffer(data, numpy.uint16, (end - first) // 2, begin + first).reshape(tensor["shape"])
    return tensors


class CudaEngine:
    """The CUDA library as the server uses it: `slots` slots that encode batch after batch, into memory of this process."""

    def __init__(self, library, model, sides, buckets, slots):
        sys.path.append(str(ROOT / "tests/gpu"))
        import cuda_backend
        import numpy
        self.cuda, self.numpy = cuda_backend, numpy
        self.backend = cuda_backend.Backend(tensors_of(model), sides=sides, buckets=buckets, api=cuda_backend.load(str(library)))
        self.slots = [self.backend.slot() for _ in range(slots)]

    def close(self):
        for slot in self.slots:
            slot.close()
        self.backend.close()

    def images_per_second(self, side, batch, seconds, slots=None):
        """Of the first `slots` slots, by default of all."""
        slots = self.slots[:slots]
        view = self.backend.view(self.numpy.random.default_rng(1).integers(0, 256, (side, side, 3), self.numpy.uint8))
        lines, counts, end = side // 64, [0] * len(slots), time.monotonic() + seconds

        def run(index):
            rows = self.numpy.empty((batch, lines * lines, WIDTH), self.numpy.uint16)
            items = (self.cuda.Item * batch)()
            for item, out in zip(items, rows):
                item.views, item.view, item.dtype = view[0].handle, view[1], self.cuda.DTYPES["bf16"]
                item.rows, item.line_stride = out.ctypes.data, lines * WIDTH * out.itemsize
            slot = slots[index]
            while time.monotonic() < end:
                self.cuda.call(self.backend.api.encode, slot.handle, side, items, batch, ctypes.byref(slot.stats))
                counts[index] += batch

        begin = time.monotonic()
        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(slots))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - begin)


class CpuEngine:
    """cpu_encoder_bench: one slot."""

    def __init__(self, program, model, type_name, threads):
        self.command = [program, model, "--type", type_name, "--threads", str(threads)]

    def close(self):
        pass

    def images_per_second(self, side, batch, seconds, slots=None):
        process = subprocess.Popen([*self.command, "--side", str(side), "--batch", str(batch)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end or len(times) < 3:
            process.stdin.write("\n")
            process.stdin.flush()
            times.append(float(process.stdout.readline()))
        process.stdin.close()
        process.wait()
        return batch * 1e3 * len(times[1:]) / sum(times[1:])
