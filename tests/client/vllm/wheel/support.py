"""vLLM's own objects, made without a model: what each test of this folder starts from.

Nothing of vLLM is replaced but its configuration, of which connectors read a handful of fields: a
whole VllmConfig wants a checkpoint and a device.
"""

import types

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaTokenizerFast
from vllm.config import ECTransferConfig
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRMultiModalProcessor
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItems, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.transformers_utils.processors.deepseek_ocr import DeepseekOCRProcessor
from vllm.v1.request import Request

WIDTH = 1280
BOS, EOS, IMAGE, WORD = 0, 1, 2, 3


def config(role="ec_consumer", connector="DeepEncoderConnector",
           module="deepencoder_vllm.connector", dtype=torch.bfloat16,
           architecture="DeepseekOCRForCausalLM", **extra):
    """What a connector reads of a VllmConfig, with vLLM's own ECTransferConfig."""
    return types.SimpleNamespace(
        ec_transfer_config=ECTransferConfig(
            ec_connector=connector, ec_role=role, ec_connector_module_path=module,
            ec_connector_extra_config=extra),
        model_config=types.SimpleNamespace(
            dtype=dtype, hf_config=types.SimpleNamespace(architectures=[architecture]),
            get_inputs_embeds_size=lambda: WIDTH))


def processor():
    """vLLM's processor for DeepSeek-OCR over a tokenizer of four words."""
    tokenizer = Tokenizer(models.WordLevel(
        {"<bos>": BOS, "<eos>": EOS, "<image>": IMAGE, "word": WORD}, unk_token="word"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return DeepseekOCRProcessor(LlamaTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="word",
        pad_token="<eos>", extra_special_tokens=["<image>"]))


def picture(width, height, seed=0):
    """An image whose every view differs."""
    noise = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height))


def features(images, dtype=torch.bfloat16, hashes=None):
    """The items of a request as its engine gets them, and the prompt's token ids."""
    output = processor()(prompt="word".join(["<image>"] * len(images)), images=images)
    # As vLLM's InputProcessingContext does with a processor's output.
    cast = {key: value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value
            for key, value in output.items()}
    fields = DeepseekOCRMultiModalProcessor._get_mm_fields_config(None, cast, {})
    items = MultiModalKwargsItems.from_hf_inputs(cast, fields)["image"]
    ids = output["input_ids"][0].tolist()
    specs, offset = [], 0
    for index, (item, length) in enumerate(zip(items, output["num_image_tokens"])):
        offset = ids.index(IMAGE, offset)
        name = hashes[index] if hashes else f"image-{index}"
        specs.append(MultiModalFeatureSpec(
            data=item, modality="image", identifier=name, mm_hash=name,
            mm_position=PlaceholderRange(offset=offset, length=int(length))))
        offset += int(length)
    return specs, ids


def request(specs, ids, request_id="r1"):
    return Request(request_id, ids, SamplingParams(max_tokens=1), None, mm_features=specs)


def coded_rows(view, mode):
    """Rows that tell which view they are of: [rows, WIDTH] as bf16 bits.

    A stand-in for the service: column 0 is a code of the view's content, column 1 the row.
    """
    count, side = {"base": (273, 1024), "small": (111, 640)}[mode]
    assert view.shape == (side, side, 3) and view.dtype == np.uint8, view.shape
    rows = np.zeros((count, WIDTH), np.float32)
    rows[:, 0] = np.float32(view.astype(np.int64).sum() % 251)
    rows[:, 1] = np.arange(count) % 256
    return (rows.view(np.uint32) >> 16).astype(np.uint16)


class FakeEncoder:
    """Encodes by coded_rows. `fail`: raises instead. `gate`: waits for it."""

    def __init__(self):
        self.calls = []
        self.fail = None
        self.gate = None
        self.closed = False

    def encode(self, pixels, mode):
        self.calls.append(mode)
        if self.gate:
            self.gate.wait(30)
        if self.fail:
            raise self.fail
        return coded_rows(pixels, mode)

    def close(self):
        self.closed = True


def settle(connector):
    """Waits until every load that was started has ended."""
    for item in list(connector._transfers._items.values()):
        item.load.exception(timeout=60)
