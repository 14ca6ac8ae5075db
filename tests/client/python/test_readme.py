"""README.md's examples run as they stand, against the real server."""

import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import deepencoder_client

import real_server
from real_server import DATA, ROOT
from test_images import pdf_file

README = (ROOT / "client" / "python" / "README.md").read_text()
EXAMPLES = re.findall(r"^<!-- test -->\n```(sh|python)\n(.*?)^```", README, re.M | re.S)


class ReadmeTest(unittest.TestCase):
    def test_examples(self):
        server = real_server.shared()
        self.assertEqual(len(EXAMPLES), README.count("<!-- test -->"))
        self.assertGreater(len(EXAMPLES), 0)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "DEEPENCODER_SERVER": server.address, "PATH": path}
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(DATA / "images" / "small_page.png", Path(folder, "page.png"))
            pdf_file(folder, 2)
            outputs = {}
            for language, text in EXAMPLES:
                command = ["bash", "-ec"] if language == "sh" else [sys.executable, "-c"]
                with self.subTest(text):
                    done = subprocess.run([*command, text], cwd=folder, env=environment,
                                          capture_output=True, text=True)  # fmt: skip
                    self.assertEqual(done.returncode, 0, done.stderr)
                    outputs[text] = done.stdout
            made = {str(path.relative_to(folder)) for path in Path(folder).rglob("*.*")}
        self.assertLessEqual(
            {"page.safetensors", "page-0.npy", "page-1.npy", "embeddings/page.safetensors",
             "embeddings/scan-0001.safetensors", "embeddings/scan-0002.safetensors"}, made,
        )  # fmt: skip
        everything = "".join(outputs.values())
        self.assertIn("273", everything)
        self.assertIn("missing.png", everything)

    def test_every_name_is_documented(self):
        for name in deepencoder_client.__all__:
            value = getattr(deepencoder_client, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                self.assertTrue(value.__doc__, name)
