"""Prompts of embeddings from a small checkpoint. That vLLM takes them: wheel/test_prompt_embeds.py."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

from deepencoder_vllm.prompt_embeds import BOS, EMBED_TOKENS, TokenEmbeddings, prompt_rows_of


def write_checkpoint(folder, table, dtype="BF16", index=True):
    """A checkpoint with another tensor before embed_tokens, so that offsets matter."""
    other = np.full(10, 7, np.uint8)
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "model.norm.weight": {"dtype": "U8", "shape": [10], "data_offsets": [0, 10]},
        EMBED_TOKENS: {"dtype": dtype, "shape": table.shape,
                       "data_offsets": [10, 10 + table.nbytes]},
    }).encode()
    name = "model-00001-of-000001.safetensors" if index else "model.safetensors"
    (folder / name).write_bytes(
        len(header).to_bytes(8, "little") + header + other.tobytes() + table.tobytes())
    if index:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {EMBED_TOKENS: name}}))


class PromptEmbedsTest(unittest.TestCase):
    TABLE = np.random.default_rng(0).integers(0, 1 << 16, (50, 6), dtype=np.uint16)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_reads_rows_with_and_without_an_index(self):
        for index in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                write_checkpoint(Path(folder), self.TABLE, index=index)
                tokens = TokenEmbeddings(folder)
                self.assertEqual(tokens.width, 6)
                np.testing.assert_array_equal(tokens.rows([3, 0, 49, 3]), self.TABLE[[3, 0, 49, 3]])
                self.assertEqual(tokens.rows([]).shape, (0, 6))

    def test_refuses_ids_outside_the_vocabulary(self):
        write_checkpoint(self.folder, self.TABLE)
        for ids in ([50], [-1]):
            with self.assertRaisesRegex(IndexError, "0 .. 49"):
                TokenEmbeddings(self.folder).rows(ids)

    def test_refuses_other_files(self):
        write_checkpoint(self.folder, self.TABLE, dtype="F16")
        with self.assertRaisesRegex(ValueError, "no model.embed_tokens.weight in bf16"):
            TokenEmbeddings(self.folder)
        (self.folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
        with self.assertRaisesRegex(ValueError, "does not name"):
            TokenEmbeddings(self.folder)
        with tempfile.TemporaryDirectory() as empty:
            with self.assertRaises(FileNotFoundError):
                TokenEmbeddings(empty)

    def test_puts_a_prompt_together(self):
        write_checkpoint(self.folder, self.TABLE)
        image = np.full((4, 6), 9, np.uint16)
        prompt = prompt_rows_of([[BOS], image, [5, 6]], TokenEmbeddings(self.folder))
        np.testing.assert_array_equal(prompt, np.vstack([self.TABLE[:1], image, self.TABLE[5:7]]))

    def test_refuses_rows_of_another_width_or_type(self):
        write_checkpoint(self.folder, self.TABLE)
        tokens = TokenEmbeddings(self.folder)
        for rows in (np.zeros((4, 5), np.uint16), np.zeros((4, 6), np.float32),
                     np.zeros((4, 6), np.float16)):
            with self.assertRaisesRegex(ValueError, "not bf16 of 6"):
                prompt_rows_of([rows], tokens)
        with self.assertRaisesRegex(ValueError, "no parts"):
            prompt_rows_of([], tokens)


if __name__ == "__main__":
    unittest.main()
