"""The synthetic checkpoint's tensors in memory: the formula of encoder/weights/synthetic.h, over numpy.

Element i of tensor `name`: splitmix64 output i of the stream that starts at FNV-1a-64 of "<seed>:<name>", its top 24
bits as a fraction u; value = centre + (2u - 1) * half_width in float32, rounded to bf16.
"""
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

GOLDEN, MIX1, MIX2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
GLOBAL_BLOCKS = (2, 5, 8, 11)
CHUNK = 1 << 20


def layout(sam_depth, clip_layers):
    """{name: shape} of every tensor the encoder reads."""
    sam, clip = "model.sam_model.", "model.vision_model."
    shapes = {sam + "pos_embed": (1, 64, 64, 768), sam + "patch_embed.proj.weight": (768, 3, 16, 16),
              sam + "patch_embed.proj.bias": (768,)}

    def dense(name, out, inp):
        shapes[name + ".weight"], shapes[name + ".bias"] = (out, inp), (out,)

    def norm(name, width):
        shapes[name + ".weight"] = shapes[name + ".bias"] = (width,)

    for i in range(sam_depth):
        block = f"{sam}blocks.{i}."
        rows = 127 if i in GLOBAL_BLOCKS else 27
        norm(block + "norm1", 768)
        shapes[block + "attn.rel_pos_h"] = shapes[block + "attn.rel_pos_w"] = (rows, 64)
        dense(block + "attn.qkv", 2304, 768)
        dense(block + "attn.proj", 768, 768)
        norm(block + "norm2", 768)
        dense(block + "mlp.lin1", 3072, 768)
        dense(block + "mlp.lin2", 768, 3072)
    shapes[sam + "neck.0.weight"] = (256, 768, 1, 1)
    norm(sam + "neck.1", 256)
    shapes[sam + "neck.2.weight"] = (256, 256, 3, 3)
    norm(sam + "neck.3", 256)
    shapes[sam + "net_2.weight"], shapes[sam + "net_3.weight"] = (512, 256, 3, 3), (1024, 512, 3, 3)
    shapes[clip + "embeddings.class_embedding"] = (1024,)
    shapes[clip + "embeddings.position_embedding.weight"] = (257, 1024)
    norm(clip + "pre_layrnorm", 1024)
    for i in range(clip_layers):
        layer = f"{clip}transformer.layers.{i}."
        norm(layer + "layer_norm1", 1024)
        dense(layer + "self_attn.qkv_proj", 3072, 1024)
        dense(layer + "self_attn.out_proj", 1024, 1024)
        norm(layer + "layer_norm2", 1024)
        dense(layer + "mlp.fc1", 4096, 1024)
        dense(layer + "mlp.fc2", 1024, 4096)
    dense("model.projector.layers", 1280, 2048)
    shapes["model.image_newline"] = shapes["model.view_seperator"] = (1280,)
    return shapes


def spread(name, shape):
    """(centre, half_width)"""
    if "norm" in name or "neck.1" in name or "neck.3" in name:
        return (1.0, 0.3) if name.endswith("weight") else (0.0, 0.2)
    if "rel_pos" in name:
        return 0.0, 0.25
    if "pos_embed" in name or "position_embedding" in name or "class_embedding" in name:
        return 0.0, 0.5
    if name.endswith(("image_newline", "view_seperator")):
        return 0.0, 1.0
    if name.endswith("bias"):
        return 0.0, 0.1
    gain = 1.4 if "qkv" in name else 1.0
    if name.endswith(("attn.proj.weight", "lin2.weight", "out_proj.weight", "fc2.weight")):
        gain = 0.5
    return 0.0, gain * math.sqrt(3.0) / math.sqrt(math.prod(shape[1:]))


def _fill(out, name, shape, seed, first):
    state = 0xCBF29CE484222325
    for byte in f"{seed}:{name}".encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(first + 1, first + 1 + out.size, dtype=np.uint64) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * MIX1
        z = (z ^ (z >> np.uint64(27))) * MIX2
        z ^= z >> np.uint64(31)
    u = (z >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
    centre, half = spread(name, shape)
    bits = (np.float32(centre) + (np.float32(2) * u - np.float32(1)) * np.float32(half)).view(np.uint32)
    out[:] = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)


def make(sam_depth=12, clip_layers=24, seed=0, threads=16):
    """{name: uint16 array of bf16 bits}"""
    tensors = {name: np.empty(shape, np.uint16) for name, shape in layout(sam_depth, clip_layers).items()}
    with ThreadPoolExecutor(threads) as pool:
        jobs = []
        for name, values in tensors.items():
            flat = values.reshape(-1)
            for first in range(0, flat.size, CHUNK):
                jobs.append(pool.submit(_fill, flat[first:first + CHUNK], name, values.shape, seed, first))
        for job in jobs:
            job.result()
    return tensors
