#!/usr/bin/env python3
"""What a user would run in place of this project's server: the PyTorch encoder behind Python gRPC, with dynamic batching.

    peer_server.py --ready-file FILE [--device cuda|cpu] [--attention dense|augmented] [--compile]

The same protocol (EncodeImage and GetModelInfo; modes base, tiny, small, large, gundam), so that the same load generator drives
it. Built as such servers are: a pool of handler threads that decode and tile with Pillow, a queue a view side, one thread that
takes up to --max-batch views and waits --batch-delay for more, the model in bf16 (CPU: fp32), results copied to the host.
Random weights: only time and memory are compared. Needs torch, numpy, Pillow, grpcio; messages are read and written by hand, so
no generated code is needed.
"""
import argparse
import concurrent.futures
import io
import os
import queue
import struct
import threading
import time

import grpc
import numpy as np
import torch
from PIL import Image, ImageOps

import torch_encoder

MODES = {1: ("tiny", 512, 0), 2: ("small", 640, 0), 3: ("base", 1024, 0), 4: ("large", 1280, 0), 5: ("gundam", 1024, 640)}
LETTERBOXED = {"base", "large", "gundam"}
MEAN_COLOUR, MAX_TILES, WIDTH = (127, 127, 127), 6, 1280


# ---------------------------------------------------------------- protobuf's wire format, as far as it is used

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """{number: value} of a message; bytes fields as memoryviews."""
    view, at, found = memoryview(data), 0, {}
    while at < len(view):
        key, at = varint(view, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(view, at)
        elif kind == 2:
            length, at = varint(view, at)
            value, at = view[at:at + length], at + length
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = view[at:at + size], at + size
        found[key >> 3] = value
    return found


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def message(**values):
    """f3=... is field 3: int, str, bytes, or a list of bytes for a repeated one."""
    parts = []
    for name, value in values.items():
        field = int(name[1:])
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int):
                parts += [number(field << 3), number(item)]
            elif isinstance(item, float):
                parts += [number(field << 3 | 1), struct.pack("<d", item)]
            else:
                item = item.encode() if isinstance(item, str) else item
                parts += [number(field << 3 | 2), number(len(item)), item]
    return b"".join(parts)


# ---------------------------------------------------------------- pictures

def tile_grid(width, height, side):
    """(columns, rows) whose aspect ratio is nearest to the picture's; (1, 1) if it fits in a tile."""
    if width <= side and height <= side:
        return 1, 1
    best, nearest = (1, 1), float("inf")
    for count in range(2, MAX_TILES + 1):
        for columns in range(1, count + 1):
            if count % columns:
                continue
            difference = abs(width / height - columns / (count // columns))
            if difference < nearest or difference == nearest and width * height > 0.5 * side * side * count:
                best, nearest = (columns, count // columns), difference
    return best


def views_of(picture, mode):
    """[(side, pixels)] of the tiles and the global view, and the tile grid."""
    name, base, tile = mode
    views, grid = [], (1, 1)
    if tile:
        grid = tile_grid(*picture.size, tile)
        if grid != (1, 1):
            mosaic = np.asarray(picture.resize((grid[0] * tile, grid[1] * tile), Image.Resampling.BICUBIC))
            views += [(tile, mosaic[y * tile:(y + 1) * tile, x * tile:(x + 1) * tile])
                      for y in range(grid[1]) for x in range(grid[0])]
    if name in LETTERBOXED:
        picture = ImageOps.pad(picture, (base, base), Image.Resampling.BICUBIC, color=MEAN_COLOUR)
    else:
        picture = picture.resize((base, base), Image.Resampling.BICUBIC)
    views.append((base, np.asarray(picture)))
    return views, grid


# ---------------------------------------------------------------- the model behind queues

class Batcher:
    """One thread that takes batches from a queue a side."""

    def __init__(self, options, sides):
        self.options = options
        self.type = torch.bfloat16 if options.device == "cuda" else torch.float32
        attend = getattr(torch_encoder, options.attention)
        self.nets = {}
        for side in sides:
            net = torch_encoder.DeepEncoder(side, attend, options.sam_depth, options.clip_layers)
            net = net.to(options.device, self.type).eval()
            self.nets[side] = torch.compile(net, dynamic=True) if options.compile else net
        self.arrived = queue.Queue()
        self.waiting = {side: [] for side in sides}
        threading.Thread(target=self.run, daemon=True).start()

    def submit(self, side, pixels):
        future = concurrent.futures.Future()
        self.arrived.put((side, pixels, future))
        return future

    def next_batch(self):
        """The side with the most views; waits for company if there are few."""
        deadline = None
        while True:
            most = max(self.waiting, key=lambda side: len(self.waiting[side]))
            if len(self.waiting[most]) >= self.options.max_batch:
                break
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0 and self.arrived.empty():
                break
            try:
                side, pixels, future = self.arrived.get(timeout=None if left is None else max(left, 0))
            except queue.Empty:
                break
            self.waiting[side].append((pixels, future))
            deadline = deadline or time.monotonic() + self.options.batch_delay
        taken = self.waiting[most][:self.options.max_batch]
        self.waiting[most] = self.waiting[most][self.options.max_batch:]
        return most, taken

    def encode(self, side, pixels):
        batch = torch.from_numpy(np.stack(pixels)).to(self.options.device, non_blocking=True)
        batch = batch.permute(0, 3, 1, 2).to(self.type) / 127.5 - 1
        return self.nets[side](batch)

    def run(self):
        with torch.inference_mode():
            while True:
                side, taken = self.next_batch()
                try:
                    rows = self.encode(side, [pixels for pixels, _ in taken]).to(torch.bfloat16).cpu()
                    for row, (_, future) in zip(rows, taken):
                        future.set_result(row)
                except Exception as error:  # the callers are told
                    for _, future in taken:
                        future.set_exception(error)


class Service(grpc.GenericRpcHandler):
    def __init__(self, options):
        self.options = options
        modes = [mode for mode in MODES.values() if mode[0] in options.modes.split(",")]
        sides = sorted({side for _, base, tile in modes for side in (base, tile) if side})
        self.modes = {number_: mode for number_, mode in MODES.items() if mode in modes}
        self.batcher = Batcher(options, sides)
        self.newline, self.separator = torch.randn(2, WIDTH).to(torch.bfloat16)
        for side in sides:
            for size in (1, options.max_batch):
                futures = [self.batcher.submit(side, np.zeros((side, side, 3), np.uint8)) for _ in range(size)]
                for future in futures:
                    future.result()

    def service(self, details):
        method = {"EncodeImage": self.encode_image, "GetModelInfo": self.model_info}.get(details.method.rpartition("/")[2])
        return method and grpc.unary_unary_rpc_method_handler(method)

    def with_newlines(self, mosaic):
        """[lines, columns, 1280] with a newline behind each line, flat."""
        return torch.cat([mosaic, self.newline.expand(mosaic.shape[0], 1, -1)], 1).flatten(0, 1)

    def encode_image(self, request, context):
        begin = time.monotonic()
        request = fields(request)
        mode = self.modes.get(request.get(4, 0) or 5)
        if mode is None or 2 not in request:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an encoded image in one of the served modes is expected")
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(request[2]))).convert("RGB")
        decoded = time.monotonic()
        views, (columns, rows) = views_of(picture, mode)
        viewed = time.monotonic()
        encoded = [future.result() for future in [self.batcher.submit(*view) for view in views]]
        computed = time.monotonic()
        base = mode[1] // 64
        local = torch.empty(0, WIDTH, dtype=torch.bfloat16)
        if len(encoded) > 1:
            tile = mode[2] // 64
            tiles = torch.stack(encoded[:-1]).view(rows, columns, tile, tile, WIDTH)
            local = self.with_newlines(tiles.permute(0, 2, 1, 3, 4).reshape(rows * tile, columns * tile, WIDTH))
        whole = self.with_newlines(encoded[-1].view(base, base, WIDTH))
        sequence = torch.cat([local, whole, self.separator.unsqueeze(0)])
        data = sequence.view(torch.int16).numpy().tobytes()
        geometry = message(f1=picture.width, f2=picture.height, f3=columns, f4=rows, f5=mode[1], f6=mode[2] if len(local) else 0,
                           f7=len(local), f8=len(whole))
        end = time.monotonic()
        timings = message(f1=decoded - begin, f2=viewed - decoded, f4=computed - viewed, f5=end - computed, f6=end - begin)
        return message(f1=bytes(request.get(1, b"")), f2=1, f3=number(len(sequence)) + number(WIDTH), f4=data, f5=geometry,
                       f6=timings)

    def model_info(self, _, context):
        modes = [message(f1=number_, f2=name, f3=base, f4=tile, f5=int(name in LETTERBOXED),
                         f6=(base // 64) * (base // 64 + 1) + 1) for number_, (name, base, tile) in self.modes.items()]
        device = torch.cuda.get_device_name() if self.options.device == "cuda" else "cpu"
        return message(f1="deepseek-ocr", f2="random", f3=WIDTH, f4=1 if self.type_is_bf16 else 3, f5=modes,
                       f6=message(f1=32 << 20, f2=178956970, f3=4, f4=32), f7=MAX_TILES, f8=f"PyTorch {torch.__version__}: {device}",
                       f9="peer", f10=1, f11="peer")

    @property
    def type_is_bf16(self):
        return self.batcher.type == torch.bfloat16


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ready-file", required=True)
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--attention", choices=("dense", "augmented"), default="dense")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--modes", default="base,gundam")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--batch-delay", type=float, default=0.005, help="seconds")
    parser.add_argument("--workers", type=int, default=64, help="handler threads")
    parser.add_argument("--sam-depth", type=int, default=12)
    parser.add_argument("--clip-layers", type=int, default=24)
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch on the CPU; 0: its default")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(options.workers), handlers=[Service(options)],
                         options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    port = server.add_insecure_port(options.listen)
    server.start()
    with open(options.ready_file + ".new", "w", encoding="utf-8") as file:
        file.write(f"grpc={options.listen.rpartition(':')[0]}:{port}\n")
    os.rename(options.ready_file + ".new", options.ready_file)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
