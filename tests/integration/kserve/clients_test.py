"""tritonclient and perf_analyzer, as they come, against the real server; run.sh brings them here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "tests" / "data" / "images"
PROGRAMS = Path(os.environ["DEEPENCODER_BIN"])
START_SECONDS = 90
MODEL = "deepseek-ocr"
PAGE = "small_page.png"  # 500 x 380


class Server:
    """The server with a small synthetic checkpoint, in fp32 on one CPU thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cli = PROGRAMS / "deepencoder"
        subprocess.run(
            [self.cli, "checkpoint", "synthesize", folder / "checkpoint", "--sam-depth", "3", "--clip-layers", "2"],
            check=True, capture_output=True,
        )  # fmt: skip
        ready, log = folder / "ready", folder / "log"
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [PROGRAMS / "deepencoder-server", f"--model={folder / 'checkpoint'}", "--device=cpu",
                 "--compute-dtype=fp32", "--threads=1", "--modes=tiny,gundam", "--batch-buckets=1", "--no-warm-up",
                 "--metrics-listen=", "--shared-memory", "--listen=127.0.0.1:0", f"--ready-file={ready}"],
                stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.02)
        self.address = ready.read_text().splitlines()[0].removeprefix("grpc=")

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait()

    def encode(self, image: str, mode: str, dtype: str, element: np.dtype) -> np.ndarray:
        """What deepencoder.v1.VisionEncoder.EncodeImage answers, through the command-line client."""
        out = self.folder / f"{image}.{mode}.{dtype}.safetensors"
        subprocess.run(
            [self.cli, "encode", IMAGES / image, f"--server={self.address}", f"--mode={mode}", f"--dtype={dtype}",
             f"--out={out}"],
            check=True, capture_output=True,
        )  # fmt: skip
        file = out.read_bytes()
        (header,) = struct.unpack_from("<Q", file)
        tensors = json.loads(file[8 : 8 + header])
        (tensor,) = [entry for name, entry in tensors.items() if name != "__metadata__"]
        begin, end = tensor["data_offsets"]
        return np.frombuffer(file[8 + header :][begin:end], element).reshape(tensor["shape"])


def image_input(*names: str, batch: bool = False) -> triton.InferInput:
    files = np.array([(IMAGES / name).read_bytes() for name in names], dtype=np.object_)
    if batch:
        files = files.reshape(-1, 1)
    tensor = triton.InferInput("image", list(files.shape), "BYTES")
    return tensor.set_data_from_numpy(files)


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = Server(Path(folder.name))
        cls.addClassCleanup(cls.server.stop)
        cls.client = triton.InferenceServerClient(cls.server.address)
        cls.addClassCleanup(cls.client.close)

    def infer(self, image: triton.InferInput, *outputs: str, **parameters: str | int) -> triton.InferResult:
        wanted = [triton.InferRequestedOutput(name) for name in outputs] or None
        return self.client.infer(MODEL, [image], outputs=wanted, parameters=parameters)

    def assert_refused(self, status: str, text: str, call, *args, **kwargs) -> None:
        with self.assertRaises(InferenceServerException) as raised:
            call(*args, **kwargs)
        self.assertEqual(raised.exception.status(), f"StatusCode.{status}")
        self.assertIn(text, raised.exception.message())

    def test_live_and_ready(self) -> None:
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready(MODEL))
        self.assertTrue(self.client.is_model_ready(MODEL, "1"))
        self.assert_refused("NOT_FOUND", "no model 'resnet'", self.client.is_model_ready, "resnet")

    def test_metadata_and_config(self) -> None:
        self.assertEqual(self.client.get_server_metadata().name, "deepencoder-server")
        metadata = self.client.get_model_metadata(MODEL)
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in metadata.inputs], [("image", "BYTES", [-1, 1])])
        self.assertEqual(
            [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs],
            [("embeddings", "BF16", [-1, -1, 1280]), ("geometry", "INT32", [-1, 8])],
        )
        config = self.client.get_model_config(MODEL, as_json=True)["config"]
        self.assertEqual(config["name"], MODEL)
        self.assertEqual(config["max_batch_size"], 32)
        self.assertEqual([t["data_type"] for t in config["input"]], ["TYPE_STRING"])
        self.assertEqual([t["data_type"] for t in config["output"]], ["TYPE_BF16", "TYPE_INT32"])
        self.assertIn("dynamic_batching", config)
        self.assertEqual(config["parameters"]["modes"]["string_value"], "tiny,gundam")

    def test_values_are_those_of_encode_image(self) -> None:
        for mode, image, geometry in (
            ("tiny", PAGE, [500, 380, 1, 1, 512, 0, 0, 72]),
            ("gundam", "size_1280x640.jpg", [1280, 640, 2, 1, 1024, 640, 210, 272]),
        ):
            for dtype, element in (("bf16", np.uint16), ("fp16", np.float16), ("fp32", np.float32)):
                result = self.infer(image_input(image), mode=mode, dtype=dtype.upper())
                rows = result.as_numpy("embeddings")
                expected = self.server.encode(image, mode, dtype, element)
                self.assertEqual(rows.shape, expected.shape)
                np.testing.assert_array_equal(rows.view(element), expected)
                self.assertEqual(result.get_output("embeddings").datatype, dtype.upper())
                self.assertEqual(result.as_numpy("geometry").tolist(), geometry)

    def test_default_is_gundam_in_bf16(self) -> None:
        result = self.infer(image_input(PAGE), "embeddings")
        self.assertEqual(result.get_output("embeddings").datatype, "BF16")
        self.assertEqual(result.as_numpy("embeddings").shape, (273, 1280))
        self.assertIsNone(result.as_numpy("geometry"))

    def test_batch(self) -> None:
        batch = self.infer(image_input(PAGE, "wide.jpg", PAGE, batch=True), mode="tiny", dtype="FP32")
        rows = batch.as_numpy("embeddings")
        self.assertEqual(rows.shape, (3, 73, 1280))
        self.assertEqual(batch.as_numpy("geometry").shape, (3, 8))
        for index, image in enumerate((PAGE, "wide.jpg", PAGE)):
            np.testing.assert_allclose(rows[index], self.server.encode(image, "tiny", "fp32", np.float32), atol=1e-5)
        self.assert_refused(
            "INVALID_ARGUMENT", "equally many rows, but image 0 has 273 and image 1 has 483",
            self.infer, image_input(PAGE, "size_1280x640.jpg", batch=True), mode="gundam",
        )  # fmt: skip

    def test_asyncio(self) -> None:
        async def infer() -> np.ndarray:
            async with triton_aio.InferenceServerClient(self.server.address) as client:
                parameters = {"mode": "tiny", "dtype": "FP32"}
                results = await asyncio.gather(
                    *(client.infer(MODEL, [image_input(PAGE)], parameters=parameters) for _ in range(3))
                )
                return np.stack([result.as_numpy("embeddings") for result in results])

        rows = asyncio.run(infer())
        expected = self.server.encode(PAGE, "tiny", "fp32", np.float32)
        np.testing.assert_allclose(rows, np.broadcast_to(expected, rows.shape), atol=1e-5)

    def test_errors_name_the_cause(self) -> None:
        image = image_input(PAGE)
        broken = triton.InferInput("image", [1], "BYTES").set_data_from_numpy(np.array([b"no image"], np.object_))
        pixels = triton.InferInput("image", [2], "UINT8").set_data_from_numpy(np.zeros(2, np.uint8))
        infer = self.client.infer
        for status, text, call in (
            ("NOT_FOUND", "no model 'resnet'; served: deepseek-ocr", lambda: infer("resnet", [image])),
            ("NOT_FOUND", "no version '2'; served: 1", lambda: infer(MODEL, [image], model_version="2")),
            ("INVALID_ARGUMENT", "format", lambda: self.infer(broken)),
            ("INVALID_ARGUMENT", "expected BYTES", lambda: self.infer(pixels)),
            ("INVALID_ARGUMENT", "expected [1] for an image, or [N, 1]",
             lambda: self.infer(image_input(PAGE, PAGE))),
            ("INVALID_ARGUMENT", "no output 'logits'", lambda: self.infer(image, "logits")),
            ("INVALID_ARGUMENT", "mode is 'huge': expected one of tiny", lambda: self.infer(image, mode="huge")),
            ("INVALID_ARGUMENT", "large is not served here", lambda: self.infer(image, mode="large")),
            ("INVALID_ARGUMENT", "unknown parameter 'max_tile'", lambda: self.infer(image, max_tile=6)),
            ("DEADLINE_EXCEEDED", "", lambda: infer(MODEL, [image], timeout=1)),
            ("UNIMPLEMENTED", "", self.client.get_inference_statistics),
            ("UNIMPLEMENTED", "", self.client.get_model_repository_index),
            ("UNIMPLEMENTED", "CUDA shared memory is not served", self.client.get_cuda_shared_memory_status),
            ("NOT_FOUND", "no shared memory region", lambda: self.client.get_system_shared_memory_status("none")),
            ("INVALID_ARGUMENT", "--shared-memory-prefix",
             lambda: self.client.register_system_shared_memory("other", "/psm_other", 10)),
            ("INVALID_ARGUMENT", "expected 1 to 128 letters",
             lambda: self.client.register_system_shared_memory("path", "/../etc/passwd", 10)),
            ("NOT_FOUND", "No such file",
             lambda: self.client.register_system_shared_memory("none", "/deepencoder-none", 10)),
        ):  # fmt: skip
            with self.subTest(text or status):
                self.assert_refused(status, text, call)

    def region(self, name: str, size: int) -> shm.SharedMemoryRegion:
        """A registered region, as tritonclient's examples make it."""
        key = f"/deepencoder-test-{os.getpid()}-{name}"
        region = shm.create_shared_memory_region(name, key, size)
        self.addCleanup(shm.destroy_shared_memory_region, region)
        self.client.register_system_shared_memory(name, key, size)
        self.addCleanup(self.client.unregister_system_shared_memory, name)
        return region

    def test_system_shared_memory(self) -> None:
        self.assertIn("system_shared_memory", self.client.get_server_metadata().extensions)
        files = serialize_byte_tensor(np.array([[(IMAGES / PAGE).read_bytes()]] * 2, dtype=np.object_))
        size, rows_at = len(files.item()), 1 << 20
        memory = self.region("tensors", 4 << 20)
        status = self.client.get_system_shared_memory_status("tensors")
        self.assertEqual(status.regions["tensors"].byte_size, 4 << 20)
        shm.set_shared_memory_region(memory, [files])
        image = triton.InferInput("image", [2, 1], "BYTES")
        image.set_shared_memory("tensors", size)
        output = triton.InferRequestedOutput("embeddings")
        output.set_shared_memory("tensors", 3 << 20, offset=rows_at)
        wanted = [output, triton.InferRequestedOutput("geometry")]
        for dtype, element in (("bf16", np.uint16), ("fp16", np.float16), ("fp32", np.float32)):
            parameters = {"mode": "tiny", "dtype": dtype.upper()}
            result = self.client.infer(MODEL, [image], outputs=wanted, parameters=parameters)
            tensor = result.get_output("embeddings")
            self.assertEqual(list(tensor.shape), [2, 73, 1280])
            rows = shm.get_contents_as_numpy(memory, element, tensor.shape, offset=rows_at)
            inline = self.infer(image_input(PAGE, PAGE, batch=True), mode="tiny", dtype=dtype.upper())
            np.testing.assert_array_equal(rows, inline.as_numpy("embeddings").view(element))
            np.testing.assert_array_equal(result.as_numpy("geometry"), inline.as_numpy("geometry"))
            self.assertEqual(tensor.parameters["shared_memory_byte_size"].int64_param, rows.nbytes)

        output.set_shared_memory("tensors", 1000, offset=rows_at)
        self.assert_refused(
            "INVALID_ARGUMENT", "shared_memory_byte_size of it is 1000",
            self.client.infer, MODEL, [image], outputs=wanted, parameters={"mode": "tiny"},
        )  # fmt: skip
        self.assert_refused(
            "ALREADY_EXISTS", "tensors", self.client.register_system_shared_memory,
            "tensors", memory._shm_key, 10,
        )  # fmt: skip
        self.client.unregister_system_shared_memory()
        self.assertEqual(len(self.client.get_system_shared_memory_status().regions), 0)
        self.assert_refused("NOT_FOUND", "no shared memory region tensors", self.infer, image, mode="tiny")

    def test_streaming_says_what_to_do(self) -> None:
        answers: list[Exception | None] = []
        with triton.InferenceServerClient(self.server.address) as client:
            client.start_stream(lambda result, error: answers.append(error))
            with contextlib.suppress(InferenceServerException):  # where the answer is there before the request
                client.async_stream_infer(MODEL, [image_input(PAGE)])
            client.stop_stream()
        self.assertTrue(answers)
        self.assertIn("call ModelInfer", str(answers[0]))

    def test_perf_analyzer(self) -> None:
        program = shutil.which("perf_analyzer")
        if program is None:
            self.skipTest("no perf_analyzer could be installed")
        environment = dict(os.environ, LD_LIBRARY_PATH=os.environ["PERF_ANALYZER_LIBRARIES"])
        version = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True)
        if version.returncode != 0 and "error while loading" in version.stderr:
            self.skipTest(f"perf_analyzer does not run here: {version.stderr.strip()}")
        # Its base64 data is a tensor as it travels: the length of the element, then the element.
        image = (IMAGES / PAGE).read_bytes()
        data = base64.b64encode(struct.pack("<I", len(image)) + image).decode()
        input_file, report = self.server.folder / "input.json", self.server.folder / "report.csv"
        input_file.write_text(json.dumps({"data": [{"image": {"b64": data}}]}))
        run = subprocess.run(
            [program, "-m", MODEL, "-i", "grpc", "-u", self.server.address, f"--input-data={input_file}",
             "-b", "2", "--request-parameter=mode:tiny:string", "--concurrency-range=2",
             "--measurement-mode=count_windows", "--measurement-request-count=5", "--stability-percentage=1000",
             "-f", report],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        header, row = (line.split(",") for line in report.read_text().splitlines()[:2])
        self.assertGreater(float(dict(zip(header, row, strict=False))["Inferences/Second"]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
