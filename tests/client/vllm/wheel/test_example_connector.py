"""Files of write_ec_file, read by vLLM's ECExampleConnector."""

import tempfile
import types
import unittest
from unittest import mock

import numpy as np
import support
import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.multimodal.parse import ImageProcessorItems
from vllm.multimodal.processing.inputs import ProcessorInputs

from deepencoder_vllm import write_ec_file


class ExampleConnectorTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def connector(self, role):
        return ECConnectorFactory.create_connector(
            support.config(connector="ECExampleConnector", module=None,
                           shared_storage_path=self.folder), role)

    def test_it_reads_what_was_written(self):
        rows = np.random.default_rng(0).integers(0, 0x7F00, (273, 1280), dtype=np.uint16)
        specs, ids = support.features([support.picture(300, 300)], hashes=["page-1"])
        request = support.request(specs, ids)
        scheduler, worker = (self.connector(role) for role in ECConnectorRole)
        self.assertFalse(scheduler.has_cache_item("page-1"))
        write_ec_file(self.folder, "page-1", rows)
        self.assertTrue(scheduler.has_cache_item("page-1"))
        scheduler.update_state_after_alloc(request, 0)
        worker.bind_connector_metadata(scheduler.build_connector_meta(None))
        cache = {}
        # The one thing replaced: a platform without a device has no name for safetensors to load to.
        platform = types.SimpleNamespace(device_type="cpu", is_cuda_alike=lambda: False)
        with mock.patch("vllm.platforms.current_platform", platform):
            worker.start_load_caches(cache)
        self.assertEqual(cache["page-1"].dtype, torch.bfloat16)
        np.testing.assert_array_equal(cache["page-1"].view(torch.uint16).numpy(), rows)

    def test_the_uuid_is_the_folder_unless_the_server_sets_options(self):
        """What the README says of --mm-processor-kwargs and --media-io-kwargs."""
        items = {"image": ImageProcessorItems([support.picture(8, 8)])}

        def hashes(**options):
            return ProcessorInputs(None, items, {"image": ["page-1"]}, **options).get_mm_hashes(
                "model", hash_algorithm="sha256")["image"]

        self.assertEqual(hashes(), ["page-1"])
        self.assertNotEqual(hashes(hf_processor_mm_kwargs={"max_crops": 6}), ["page-1"])


if __name__ == "__main__":
    unittest.main()
