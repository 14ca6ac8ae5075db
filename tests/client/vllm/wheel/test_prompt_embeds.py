"""Prompts of embeddings, through what vLLM does with them before its engine."""

import types
import unittest

import numpy as np
import support
import torch
from vllm.exceptions import VLLMValidationError
from vllm.renderers.chat_utils.chat_message import MM_PARSER_MAP
from vllm.renderers.embed_utils import safe_load_prompt_embeds
from vllm.renderers.hf import HfRenderer

from deepencoder_vllm.prompt_embeds import chat_part, to_base64

ROWS = np.random.default_rng(0).integers(0, 0x7F00, (273, support.WIDTH), dtype=np.uint16)


def model(**changes):
    return types.SimpleNamespace(**{
        "enable_prompt_embeds": True, "dtype": torch.bfloat16, "hf_text_config": object(),
        "get_hidden_size": lambda: support.WIDTH, **changes})


class PromptEmbedsTest(unittest.TestCase):
    def test_vllm_reads_the_tensor(self):
        tensor = safe_load_prompt_embeds(model(), to_base64(ROWS).encode())
        np.testing.assert_array_equal(tensor.view(torch.uint16).numpy(), ROWS)
        for kind in (np.float16, np.float32):
            values = np.arange(2 * support.WIDTH, dtype=kind).reshape(2, -1) % 128
            tensor = safe_load_prompt_embeds(model(), to_base64(values).encode())
            self.assertEqual(tensor.dtype, torch.bfloat16)
            np.testing.assert_array_equal(tensor.float().numpy(), values)

    def test_vllm_refuses_another_width_and_a_server_without_the_flag(self):
        with self.assertRaisesRegex(VLLMValidationError, "hidden_size 8 does not match"):
            safe_load_prompt_embeds(model(), to_base64(ROWS[:, :8]).encode())
        with self.assertRaisesRegex(VLLMValidationError, "--enable-prompt-embeds"):
            safe_load_prompt_embeds(model(enable_prompt_embeds=False), to_base64(ROWS).encode())

    def test_a_content_part_becomes_the_rows_between_the_text(self):
        part = chat_part(ROWS)
        data = MM_PARSER_MAP[part["type"]](part)
        tensor = safe_load_prompt_embeds(model(), data.encode())
        # <bos> <prompt_embeds> word word, as the chat template renders it.
        prompt = {"prompt_token_ids": [support.BOS, 99, support.WORD, support.WORD]}
        HfRenderer._apply_prompt_embeds_to_prompt(prompt, [tensor], 99)
        is_token = [True] + [False] * len(ROWS) + [True, True]
        self.assertEqual(prompt["prompt_is_token_ids"], is_token)
        self.assertEqual(len(prompt["prompt_token_ids"]), len(is_token))
        image = prompt["prompt_embeds"][1 : 1 + len(ROWS)]
        np.testing.assert_array_equal(image.view(torch.uint16).numpy(), ROWS)


if __name__ == "__main__":
    unittest.main()
