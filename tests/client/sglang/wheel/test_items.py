"""Items through SGLang's own processor and scheduler code, on the CPU."""

import types
import unittest

import torch
from sglang.srt.managers import mm_schedule
from sglang.srt.managers.schedule_batch import Modality, MultimodalInputFormat
from sglang.srt.models.deepseek_ocr import DeepseekOCRForCausalLM
from sglang.srt.multimodal.processors.base_processor import (
    BaseMultiModalProcessorOutput,
    MultimodalSpecialTokens,
)
from sglang.srt.multimodal.processors.deepseek_ocr import DeepseekOCRProcessor

from deepencoder_sglang import IMAGE_TOKEN, generate_arguments

WIDTH = 1280
TOKENS = MultimodalSpecialTokens(image_token="<image>", image_token_id=IMAGE_TOKEN)


def rows(count, seed):
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)).bfloat16()


def process(arguments):
    """What DeepseekOCRProcessor does with a prompt of ids whose images need no loading."""
    processor = object.__new__(DeepseekOCRProcessor)  # its __init__ wants a server's arguments
    # Hashing on a device and moving to it are left out: there is none.
    processor.mm_processor_executor = None
    processor._resolve_processor = lambda override: (None, None)
    processor._precompute_hashes_before_cpu_transfer = lambda items: None
    processor._prepare_mm_items_for_transport = lambda items: items
    processor.ATTR_NAME_TO_MODALITY = {}
    processor.FEATURE_NAMES = ["pixel_values"]
    ids, images = arguments["input_ids"], arguments["image_data"]
    processor.validate_mm_data(images)
    assert processor._all_mm_data_is_preprocessed(images)
    items, input_ids, _ = processor.process_and_combine_mm_data(
        BaseMultiModalProcessorOutput(input_text="", input_ids=ids, images=images), TOKENS)
    return items, input_ids


class ItemsTest(unittest.TestCase):
    def embed(self, arguments, prefix=0, length=None):
        """The rows that reach the model in a prefill of [prefix, prefix + length)."""
        items, input_ids = process(arguments)
        length = len(input_ids) - prefix if length is None else length
        chunk = input_ids[prefix : prefix + length].clone()
        for item in items:
            chunk[chunk == IMAGE_TOKEN] = item.pad_value  # as the scheduler pads
        def encoder(_):
            raise AssertionError("the image encoder was asked")
        embedding, mask, _ = mm_schedule.get_embedding_and_mask(
            encoder, items, torch.tensor([item.pad_value for item in items]), chunk,
            [0, len(items)], [prefix], [length], [[o for item in items for o in item.offsets]])
        return embedding, mask.flatten()

    def test_rows_replace_placeholders_without_the_encoder(self):
        image = rows(273, 0)
        embedding, mask = self.embed(generate_arguments([[0], image, [5, 6]]))
        self.assertTrue(torch.equal(embedding, image))
        self.assertEqual(mask.tolist(), [False] + [True] * 273 + [False] * 2)

    def test_several_images(self):
        first, second = rows(273, 1), rows(903, 2)
        arguments = generate_arguments([[0], first, [5], second, [6]])
        items, _ = process(arguments)
        self.assertEqual([tuple(offset) for item in items for offset in item.offsets],
                         [(1, 273), (275, 1177)])
        embedding, mask = self.embed(arguments)
        self.assertTrue(torch.equal(embedding, torch.cat([first, second])))
        self.assertEqual(int(mask.sum()), 273 + 903)

    def test_a_prefill_in_chunks(self):
        first, second = rows(273, 3), rows(903, 4)
        arguments = generate_arguments([[0], first, [5], second, [6]])
        every = torch.cat([first, second])
        for prefix, length, begin, end in ((0, 100, 0, 99), (100, 300, 99, 398), (400, 779, 398, 1176)):
            embedding, _ = self.embed(arguments, prefix, length)
            self.assertTrue(torch.equal(embedding, every[begin:end]), (prefix, length))

    def test_images_are_told_apart_by_their_content(self):
        hashes = {process(generate_arguments([[0], rows(273, seed), [5]]))[0][0].hash
                  for seed in (5, 6, 5)}
        self.assertEqual(len(hashes), 2)

    def test_the_other_format_ends_in_the_encoder(self):
        """Why image_item does not use "precomputed_embedding". A failure here is news."""
        arguments = generate_arguments([[0], rows(273, 0), [5]])
        arguments["image_data"] = [{"format": "precomputed_embedding", "feature": rows(273, 0)}]
        (item,), _ = process(arguments)
        self.assertEqual(item.format, MultimodalInputFormat.PRECOMPUTED_EMBEDDING)
        self.assertEqual(item.modality, Modality.IMAGE)
        self.assertIsNone(item.precomputed_embeddings)
        model = types.SimpleNamespace(
            is_ocr2=False, vision_model=types.SimpleNamespace(dtype=torch.bfloat16),
            _collect_mm_flag=lambda items, name: None)
        with self.assertRaisesRegex(AttributeError, "images_crop"):
            DeepseekOCRForCausalLM._process_image_input(model, [item])


if __name__ == "__main__":
    unittest.main()
