"""Why there is no SglangEncoder service. A failure here is news: a way has opened."""

import inspect
import unittest

import torch
from sglang.srt.arg_groups import pd_disaggregation_hook
from sglang.srt.disaggregation.encoder.receiver import EmbeddingData
from sglang.srt.multimodal.processors.base_processor import BaseMultimodalProcessor
from sglang.srt.multimodal.processors.deepseek_ocr import DeepseekOCRProcessor
from smg_grpc_proto import sglang_encoder_pb2


class LimitsTest(unittest.TestCase):
    def test_the_model_is_not_admitted_to_disaggregation(self):
        source = inspect.getsource(pd_disaggregation_hook)
        self.assertIn("is not supported for encoder disaggregation", source)
        self.assertIn("KimiVLForConditionalGeneration", source)
        self.assertNotIn("DeepseekOCRForCausalLM", source)

    def test_its_processor_does_not_lay_out_received_rows(self):
        self.assertIs(DeepseekOCRProcessor.get_mm_data, BaseMultimodalProcessor.get_mm_data)
        # The inherited one counts placeholders from Qwen's grid, which this model does not have.
        processor = object.__new__(DeepseekOCRProcessor)
        with self.assertRaises((AttributeError, TypeError)):
            processor.get_mm_data([0, 128815, 5], {}, img_grid_thw=torch.tensor([[1, 2, 2]]))

    def test_the_reply_has_no_place_for_rows(self):
        fields = [field.name for field in sglang_encoder_pb2.EncodeResponse.DESCRIPTOR.fields]
        self.assertEqual(fields, ["embedding_size", "embedding_len", "embedding_dim"])

    def test_rows_travel_with_a_pickle_of_its_own_class(self):
        self.assertEqual(EmbeddingData.__module__, "sglang.srt.disaggregation.encoder.receiver")


if __name__ == "__main__":
    unittest.main()
