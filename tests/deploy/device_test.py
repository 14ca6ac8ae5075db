#!/usr/bin/env python3
"""A server where no GPU can be used: it says so, or does not start, as it was told."""
import os
import subprocess
import unittest

PROGRAM = os.environ.get("DEEPENCODER_SERVER_PROGRAM", "build/bin/deepencoder-server")


class NoDeviceTest(unittest.TestCase):
    def log(self, device):
        """Of a start that ends at once: devices are looked for before the checkpoint, which is not there."""
        done = subprocess.run(
            [PROGRAM, "--model=/nonexistent", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-format=text"],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "DEEPENCODER_DEVICE": device}, check=False, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stdout

    def test_auto_warns_that_it_takes_the_cpu(self):
        self.assertRegex(self.log("auto"), r"warning +no CUDA device, encoding on the CPU")

    def test_cuda_does_not_take_the_cpu(self):
        log = self.log("cuda")
        self.assertRegex(log, r"error +cannot start reason=.*--device=cuda: ")
        self.assertNotIn("encoding on the CPU", log)

    def test_cpu_needs_no_warning(self):
        self.assertNotIn("no CUDA device", self.log("cpu"))


if __name__ == "__main__":
    unittest.main()
