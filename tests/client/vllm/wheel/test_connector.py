"""The connector between vLLM's own scheduler, encoder cache and model runner parts, on the CPU."""

import pickle
import threading
import types
import unittest
from unittest import mock

import numpy as np
import support
import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.worker.gpu.ec_connector import ActiveECConnector
from vllm.v1.worker.gpu.mm.encoder_cache import EncoderCache
from vllm.v1.worker.gpu.mm.encoder_runner import EncoderRunner

from deepencoder_vllm.connector import DeepEncoderConnector
from deepencoder_vllm.geometry import TileGrid, prompt_rows
from deepencoder_vllm.views import assemble

SCHEDULER, WORKER = ECConnectorRole.SCHEDULER, ECConnectorRole.WORKER


class FakeServiceConnector(DeepEncoderConnector):
    """With an encoder of the test's in place of a connection. The factory finds it here."""

    @classmethod
    def make_encoder(cls, config, dtype):
        cls.made_for = dtype
        return support.FakeEncoder()


def create(side, **changes):
    return ECConnectorFactory.create_connector(
        support.config(connector="FakeServiceConnector", module=__name__, **changes), side)


def schedule(connector, request, computed=0):
    """One step of vLLM's scheduler for one request, as far as encoder inputs go.

    Returns (items that vLLM's own encoder computes, items loaded, the step's metadata), or None if
    the request has to wait. The scheduler's methods are the wheel's; of the scheduler itself only
    what they touch exists.
    """
    scheduler = types.SimpleNamespace(
        ec_connector=connector, is_encoder_decoder=False,
        scheduler_config=types.SimpleNamespace(disable_chunked_mm_input=False),
        encoder_cache_manager=EncoderCacheManager(cache_size=10000),
        _reject_on_encoder_cache_embed_mismatch=lambda *args: False)
    if Scheduler._ec_transfer_pending(scheduler, request, computed):
        return None
    local, _, _, external, duplicates = Scheduler._try_schedule_encoder_inputs(
        scheduler, request, computed, request.num_tokens - computed, 10000)
    Scheduler._allocate_encoder_inputs(scheduler, request, local + external, duplicates)
    return local, external, connector.build_connector_meta(None)


class ConnectorTest(unittest.TestCase):
    def connector(self, **extra):
        connector = create(SCHEDULER, **extra)
        self.addCleanup(connector.shutdown)
        return connector

    def scheduled(self, connector, request):
        """As schedule, once everything that was started has ended."""
        first = schedule(connector, request)
        support.settle(connector)
        return first, schedule(connector, request)

    def test_factory_finds_it_by_module_path(self):
        found = ECConnectorFactory.get_connector_class(support.config().ec_transfer_config)
        self.assertIs(found, DeepEncoderConnector)
        self.assertTrue(issubclass(found, ECConnectorBase))
        self.assertEqual(found.__abstractmethods__, frozenset())
        worker = create(WORKER)
        self.assertTrue(worker.is_consumer)
        worker.shutdown()

    def test_rows_reach_the_placeholders(self):
        images = [support.picture(1300, 900, 1), support.picture(300, 500, 2)]
        specs, ids = support.features(images)
        request, connector = support.request(specs, ids), self.connector()
        connector._encoder.gate = threading.Event()
        self.assertIsNone(schedule(connector, request))  # under way: the request waits
        self.assertIsNone(schedule(connector, request))
        connector._encoder.gate.set()
        support.settle(connector)
        local, external, metadata = schedule(connector, request)
        self.assertEqual((local, external), ([], [0, 1]))
        self.assertEqual(sorted(connector._encoder.calls), ["base", "base"] + ["small"] * 6)

        # To another process, as vLLM's executors send it, and into the runner's encoder cache.
        metadata = pickle.loads(pickle.dumps(metadata))
        cache = EncoderCache()
        cache.add_request(request.request_id, specs)
        runner = ActiveECConnector.__new__(ActiveECConnector)  # its __init__ wants the process's own
        runner.encoder_cache, runner.save_new_caches = cache.encoder_outputs, False
        runner.ec_connector = create(WORKER)
        step = types.SimpleNamespace(ec_connector_metadata=metadata, finished_req_ids=set())
        # PyTorch cannot pin memory without a driver.
        with runner.maybe_get_output(step) as output, \
             mock.patch("vllm.v1.worker.gpu.mm.encoder_runner.PIN_MEMORY", False):
            self.assertIsNotNone(output)
            gathered, mask = EncoderRunner.gather_mm_embeddings(
                types.SimpleNamespace(encoder_cache=cache, is_realtime=False),
                [request.request_id], len(ids), np.array([len(ids)]), np.array([0, len(ids)]),
                np.array([len(ids)]), np.array([0]))
        self.assertEqual(mask.tolist(), [token == support.IMAGE for token in ids])
        self.assertEqual([tuple(rows.shape) for rows in gathered],
                         [(prompt_rows(1300, 900), support.WIDTH), (273, support.WIDTH)])
        for image, spec, rows in zip(images, specs, gathered):
            self.assertEqual(rows.dtype, torch.bfloat16)
            expected = self.expected(spec)
            self.assertTrue(np.array_equal(rows.view(torch.uint16).numpy(), expected), image.size)

    @staticmethod
    def expected(spec):
        """From the item's tensors, by PyTorch instead of by the package's tables."""
        def rows(view, mode):
            pixels = ((view.float() * 0.5 + 0.5) * 255).round().byte().permute(1, 2, 0).numpy()
            return support.coded_rows(pixels, mode)
        data = {key: element.data for key, element in spec.data.items()}
        grid = TileGrid(*data["images_spatial_crop"].tolist())
        return assemble(rows(data["pixel_values"], "base"),
                        [rows(tile, "small") for tile in data["images_crop"]], grid)

    def test_rows_come_in_the_models_type(self):
        for dtype, name in ((torch.float16, "fp16"), (torch.float32, "fp32")):
            connector = self.connector(dtype=dtype)
            self.assertEqual(connector.made_for, name)
            worker = create(WORKER, dtype=dtype)
            rows = np.full((2, 4), 0.5, name.replace("fp", "float"))
            tensor = worker._tensor(rows)
            self.assertEqual((tensor.dtype, tensor.sum().item()), (dtype, 4.0))

    def test_a_cached_item_is_not_loaded_again(self):
        worker, kept = create(WORKER), torch.zeros(1)
        cache = {"a": kept}
        connector = self.connector()
        connector._loads = {"a": np.ones((2, 2), np.uint16), "b": np.ones((2, 2), np.uint16)}
        worker.bind_connector_metadata(connector.build_connector_meta(None))
        worker.start_load_caches(cache)
        self.assertIs(cache["a"], kept)
        self.assertEqual(cache["b"].shape, (2, 2))
        self.assertEqual(connector.build_connector_meta(None).loads, {})  # handed over once

    def test_an_image_is_encoded_once_for_many_requests(self):
        connector = self.connector()
        specs, ids = support.features([support.picture(300, 300)])
        for name in ("r1", "r2", "r3"):
            request = support.request(specs, ids, name)
            schedule(connector, request)
            support.settle(connector)
            self.assertEqual(schedule(connector, request)[:2], ([], [0]))
            connector.update_state_after_free(request, 0)
            self.assertEqual(connector.request_finished(request), (False, None))
        self.assertEqual(connector._encoder.calls, ["base"])

    def test_computed_tokens_need_nothing(self):
        connector = self.connector()
        specs, ids = support.features([support.picture(300, 300)])
        request = support.request(specs, ids)
        self.assertTrue(connector.ensure_cache_available(request, len(ids)))
        self.assertEqual(connector._encoder.calls, [])

    def test_vllm_encodes_itself_what_failed(self):
        connector = self.connector()
        connector._encoder.fail = RuntimeError("no server")
        specs, ids = support.features([support.picture(300, 300)])
        request = support.request(specs, ids)
        with self.assertLogs("vllm.deepencoder_vllm", "WARNING") as logs:
            _, (local, external, metadata) = self.scheduled(connector, request)
            schedule(connector, request)
        self.assertEqual((local, external, metadata.loads), ([0], [], {}))
        self.assertEqual(connector.take_unavailable_requests(), set())
        self.assertEqual(len(logs.output), 1)  # said once, not in every step
        self.assertIn("no server; vLLM encodes it itself", logs.output[0])

    def test_or_the_request_fails(self):
        connector = self.connector(on_error="fail")
        connector._encoder.fail = RuntimeError("no server")
        specs, ids = support.features([support.picture(300, 300)])
        request = support.request(specs, ids)
        with self.assertLogs("vllm.deepencoder_vllm", "WARNING"):
            _, second = self.scheduled(connector, request)
        self.assertIsNone(second)
        self.assertEqual(connector.take_unavailable_requests(), {"r1"})
        self.assertEqual(connector.take_unavailable_requests(), set())
        connector.request_finished(request)
        connector._encoder.fail = None  # asked again, it is tried again
        _, (local, external, _) = self.scheduled(connector, support.request(specs, ids, "r2"))
        self.assertEqual((local, external), ([], [0]))

    def test_refuses_rows_that_do_not_fill_the_placeholders(self):
        connector = self.connector()
        specs, ids = support.features([support.picture(300, 300)])
        specs[0].mm_position = types.SimpleNamespace(offset=1, length=100, get_num_embeds=lambda: 100)
        request = support.request(specs, ids)
        connector.ensure_cache_available(request, 0)
        support.settle(connector)
        self.assertRegex(str(connector._transfers.error("image-0")), r"\(273, 1280\).*\(100, 1280\)")

    def test_leaves_an_encoder_with_a_lora_to_vllm(self):
        connector = self.connector()
        specs, ids = support.features([support.picture(300, 300)])
        specs[0].identifier = "lora:image-0"
        with self.assertLogs("vllm.deepencoder_vllm", "WARNING") as logs:
            _, (local, external, _) = self.scheduled(connector, support.request(specs, ids))
        self.assertEqual((local, external), ([0], []))
        self.assertIn("LoRA", logs.output[0])

    def test_refuses_configurations_that_cannot_work(self):
        for changes, message in (
            ({"role": "ec_producer"}, "must be ec_consumer"),
            ({"role": "ec_both"}, "must be ec_consumer"),
            ({"architecture": "DeepseekOCR2ForCausalLM"}, "serves DeepseekOCRForCausalLM"),
            ({"dtype": torch.float64}, "no embeddings in torch.float64"),
            ({"on_error": "ignore"}, "neither 'local' nor 'fail'"),
            ({"sever": "x:1"}, "unknown sever; known: concurrency"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                create(SCHEDULER, **changes)


if __name__ == "__main__":
    unittest.main()
