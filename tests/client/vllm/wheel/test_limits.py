"""What the README says that vLLM cannot take. A failure here is news: a way has opened."""

import types
import unittest

import torch
from transformers import BatchFeature
from vllm.model_executor.models.deepseek_ocr import (
    DeepseekOCRForCausalLM,
    DeepseekOCRMultiModalProcessor,
)
from vllm.multimodal.inputs import MultiModalKwargsItems
from vllm.multimodal.parse import MultiModalDataParser
from vllm.multimodal.processing import BaseProcessingInfo
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRProcessingInfo


class LimitsTest(unittest.TestCase):
    def test_image_embeds_are_dropped(self):
        inputs = BatchFeature({"image_embeds": torch.zeros(1, 273, 1280)})
        fields = DeepseekOCRMultiModalProcessor._get_mm_fields_config(None, inputs, {})
        self.assertNotIn("image_embeds", fields)
        items = MultiModalKwargsItems.from_hf_inputs(inputs, fields)
        self.assertNotIn("image_embeds", dict(items.get("image", [{}])[0]) if "image" in items else {})

    def test_the_model_has_no_use_for_image_embeds(self):
        model = types.SimpleNamespace(
            _parse_and_validate_image_input=lambda **inputs:
                DeepseekOCRForCausalLM._parse_and_validate_image_input(None, **inputs))
        self.assertIsNone(
            DeepseekOCRForCausalLM.embed_multimodal(model, image_embeds=torch.zeros(1, 273, 1280)))

    def test_a_consumer_needs_the_pixels(self):
        """No field is declared that would size the placeholders without the image."""
        self.assertEqual(MultiModalDataParser.placeholder_metadata_fields("image"), set())
        self.assertIs(DeepseekOCRProcessingInfo.get_data_parser, BaseProcessingInfo.get_data_parser)


if __name__ == "__main__":
    unittest.main()
