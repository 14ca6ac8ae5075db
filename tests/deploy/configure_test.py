#!/usr/bin/env python3
"""Configuring where the CUDA compiler is too old to build the CUDA backend."""
import os
import subprocess
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class OldCudaTest(unittest.TestCase):
    def configure(self, backend):
        """The status and the messages, with an nvcc that can only say its version."""
        with tempfile.TemporaryDirectory() as folder:
            nvcc = os.path.join(folder, "nvcc")
            with open(nvcc, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
            os.chmod(nvcc, 0o755)
            done = subprocess.run(
                ["cmake", "-G", "Ninja", "-S", SOURCE, "-B", os.path.join(folder, "build"), f"-DCMAKE_CUDA_COMPILER={nvcc}",
                 f"-DDEEPENCODER_CUDA={backend}", "-DDEEPENCODER_HOST=OFF", "-DDEEPENCODER_TESTS=OFF"],
                check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return done.returncode, " ".join(done.stdout.split())

    def test_auto_builds_no_cuda_backend(self):
        status, said = self.configure("AUTO")
        self.assertEqual(status, 0, said)
        self.assertIn("nvcc is of CUDA 12.4, older than 12.8", said)
        self.assertIn("-- CUDA backend: OFF", said)

    def test_on_is_refused(self):
        status, said = self.configure("ON")
        self.assertNotEqual(status, 0)
        self.assertRegex(said, "DEEPENCODER_CUDA=ON, but .*nvcc is of CUDA 12.4, older than 12.8")


if __name__ == "__main__":
    unittest.main()
