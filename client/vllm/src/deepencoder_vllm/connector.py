"""An EC connector that gets DeepSeek-OCR's image embeddings from a deepencoder server.

vLLM makes two of them. The scheduler's one asks the service for the rows of each image as soon as
the request is first considered, and lets the request wait meanwhile; when the rows are here it
hands them to the workers with that step's metadata. The workers' one puts them into the encoder
cache, where the model finds them in place of what its own encoder would have computed. With tensor
parallelism an image is still encoded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm import __version__ as vllm_version
from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
)
from vllm.logger import init_logger

from .geometry import BASE_SIDE, TILE_SIDE, TileGrid
from .service import ClientEncoder, ViewEncoder
from .transfers import Transfers, results
from .versions import version_note
from .views import MODE_OF_SIDE, Pixels, Rows, assemble, pixels_of_view

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.multimodal.inputs import MultiModalFeatureSpec
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

# Under vLLM's own name, so that its handlers and level apply.
logger = init_logger("vllm.deepencoder_vllm")

ARCHITECTURE = "DeepseekOCRForCausalLM"
_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
_SETTINGS = frozenset(
    "server tls tls_ca token_env timeout concurrency view_concurrency idle_bytes on_error".split()
)


class UnusableItemError(Exception):
    """An image whose pixels this connector cannot read."""


@dataclass
class DeepEncoderMetadata(ECConnectorMetadata):
    """From the scheduler to the workers, once a step."""

    loads: dict[str, Rows] = field(default_factory=dict)
    """Rows by mm_hash: [rows, width], bf16 as its bits in uint16."""


class DeepEncoderConnector(ECConnectorBase):
    """Consumer of a deepencoder server. Options: ec_connector_extra_config, see the README."""

    def __init__(self, vllm_config: VllmConfig, role: ECConnectorRole) -> None:
        """Called by vLLM. Raises ValueError for a configuration that cannot work."""
        super().__init__(vllm_config=vllm_config, role=role)
        if self.is_producer:
            raise ValueError("DeepEncoderConnector: ec_role must be ec_consumer")
        model = vllm_config.model_config
        architectures = list(getattr(model.hf_config, "architectures", None) or [])
        if ARCHITECTURE not in architectures:
            raise ValueError(f"DeepEncoderConnector serves {ARCHITECTURE}, not {architectures}")
        if model.dtype not in _DTYPES:
            raise ValueError(f"DeepEncoderConnector: no embeddings in {model.dtype}")
        self._dtype = model.dtype
        self._width = model.get_inputs_embeds_size()
        if role == ECConnectorRole.SCHEDULER:
            self._start_scheduler_side(vllm_config.ec_transfer_config.ec_connector_extra_config)

    def _start_scheduler_side(self, config: Mapping[str, Any]) -> None:
        if unknown := sorted(set(config) - _SETTINGS):
            raise ValueError(
                f"ec_connector_extra_config: unknown {', '.join(unknown)}; "
                f"known: {', '.join(sorted(_SETTINGS))}"
            )
        on_error = config.get("on_error", "local")
        if on_error not in ("local", "fail"):
            raise ValueError(f"on_error: {on_error!r} is neither 'local' nor 'fail'")
        if note := version_note(vllm_version):
            logger.warning("%s", note)
        self._fail_on_error = on_error == "fail"
        self._encoder = self.make_encoder(config, _DTYPES[self._dtype])
        self._transfers = Transfers(
            int(config.get("concurrency", 16)), int(config.get("idle_bytes", 256 << 20))
        )
        # Apart from the items' own threads, which wait for these.
        self._views = ThreadPoolExecutor(
            int(config.get("view_concurrency", 32)), thread_name_prefix="deepencoder-view"
        )
        self._promised: dict[str, Rows] = {}  # announced to the scheduler in this step
        self._loads: dict[str, Rows] = {}  # to be loaded in this step
        self._unavailable: set[str] = set()  # requests to fail
        self._told: set[tuple[str, str]] = set()  # (request, item) whose failure was logged
        logger.info("deepencoder-vllm: image embeddings from %s", config.get("server", "default"))

    @classmethod
    def make_encoder(cls, config: Mapping[str, Any], dtype: str) -> ViewEncoder:
        """Who encodes. A subclass may bring another."""
        return ClientEncoder(config, dtype)

    # ---- Scheduler ----

    def ensure_cache_available(self, request: Request, num_computed_tokens: int) -> bool:
        """Starts what the request still needs; False while something is under way."""
        waiting = False
        for feature in request.mm_features:
            position = feature.mm_position
            if feature.modality != "image" or (
                position.offset + position.length <= num_computed_tokens
            ):
                continue
            identifier = feature.identifier
            ended = self._transfers.start(
                identifier, request.request_id, partial(self._load, feature)
            )
            if not ended:
                waiting = True
            elif (error := self._transfers.error(identifier)) is not None:
                self._tell(request.request_id, identifier, error)
                if self._fail_on_error:
                    self._unavailable.add(request.request_id)
                    return False
        return not waiting

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the rows are here. A yes holds until the end of the step."""
        rows = self._transfers.rows(identifier)
        if rows is None:
            return identifier in self._promised
        self._promised[identifier] = rows
        return True

    def update_state_after_alloc(self, request: Request, index: int) -> None:
        """The encoder cache has room for the item: load it in this step if its rows are here."""
        identifier = request.mm_features[index].identifier
        if self.has_cache_item(identifier):
            self._loads[identifier] = self._promised[identifier]

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> DeepEncoderMetadata:
        """What the workers load; the step ends here."""
        metadata = DeepEncoderMetadata(self._loads)
        self._loads, self._promised = {}, {}
        return metadata

    def update_state_after_free(self, request: Request, index: int) -> None:
        """The item's tokens are computed."""
        self._transfers.release(request.mm_features[index].identifier, request.request_id)

    def request_finished(self, request: Request) -> tuple[bool, dict[str, Any] | None]:
        """Also of aborted requests. Nothing is sent, so nothing has to be kept."""
        for feature in request.mm_features:
            self._transfers.release(feature.identifier, request.request_id)
            self._told.discard((request.request_id, feature.identifier))
        return False, None

    def take_unavailable_requests(self) -> set[str]:
        """Requests to fail: with on_error "fail", those with an image that failed."""
        taken, self._unavailable = self._unavailable, set()
        return taken

    def shutdown(self) -> None:
        """Ends the threads and the connection."""
        if self.role == ECConnectorRole.SCHEDULER:
            # First the views: items wait for theirs.
            self._views.shutdown(wait=True, cancel_futures=True)
            self._transfers.close()
            self._encoder.close()

    def _load(self, feature: MultiModalFeatureSpec) -> Rows:
        """The rows of an item; runs in a thread of its own."""
        if feature.mm_hash is not None and feature.identifier != feature.mm_hash:
            raise UnusableItemError("a LoRA on the encoder: the service does not have it")
        base, tiles, grid = item_views(feature)
        encoded = [
            self._views.submit(self._encoder.encode, view, MODE_OF_SIDE[view.shape[0]])
            for view in (base, *tiles)
        ]
        base_rows, *tile_rows = results(encoded)
        rows = assemble(base_rows, tile_rows, grid)
        expected = (feature.mm_position.get_num_embeds(), self._width)
        if rows.shape != expected:
            raise UnusableItemError(f"rows {rows.shape}, but the prompt has room for {expected}")
        return rows

    def _tell(self, request_id: str, identifier: str, error: BaseException) -> None:
        if (request_id, identifier) in self._told:
            return
        self._told.add((request_id, identifier))
        logger.warning(
            "deepencoder-vllm: request %s, image %s: %s: %s; %s",
            request_id,
            identifier,
            type(error).__name__,
            error,
            "the request fails" if self._fail_on_error else "vLLM encodes it itself",
        )

    # ---- Workers ----

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        """Puts this step's rows into the encoder cache, on the worker's device."""
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, DeepEncoderMetadata)
        for identifier, rows in metadata.loads.items():
            if identifier not in encoder_cache:
                encoder_cache[identifier] = self._tensor(rows).to(worker_device())

    def save_caches(
        self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **kwargs: Any
    ) -> None:
        """A consumer saves nothing."""

    def _tensor(self, rows: Rows) -> torch.Tensor:
        # A copy: what came through pickle or gRPC is read-only, which tensors cannot be.
        tensor = torch.from_numpy(np.array(rows))
        return tensor.view(torch.bfloat16) if self._dtype == torch.bfloat16 else tensor


def worker_device() -> torch.device:
    """The device of this process; the CPU where vLLM sees no accelerator."""
    from vllm.platforms import current_platform

    if current_platform.is_cuda_alike():
        return torch.device(current_platform.device_type, current_platform.current_device())
    return torch.device(current_platform.device_type or "cpu")


def item_views(feature: MultiModalFeatureSpec) -> tuple[Pixels, list[Pixels], TileGrid]:
    """The global view and the tiles of an item, as vLLM's processor made them.

    Raises UnusableItemError where the scheduler does not have them.
    """
    data = feature.data
    if data is None or "pixel_values" not in data:
        raise UnusableItemError(
            "vLLM keeps the pixels out of the scheduler's reach (mm_processor_cache_type=shm); "
            "use --mm-processor-cache-type lru"
        )
    base, tiles, grid = (
        data[key].data for key in ("pixel_values", "images_crop", "images_spatial_crop")
    )
    columns, rows = (int(count) for count in grid.flatten().tolist())
    expected = 0 if (columns, rows) == (1, 1) else columns * rows
    if base.shape != (3, BASE_SIDE, BASE_SIDE) or tiles.shape[0] != expected:
        shapes = f"{tuple(base.shape)} and {tuple(tiles.shape)}"
        raise UnusableItemError(f"views of {shapes}: not gundam")
    if expected and tiles.shape[1:] != (3, TILE_SIDE, TILE_SIDE):
        raise UnusableItemError(f"tiles of {tuple(tiles.shape[1:])}: not gundam")
    return _pixels(base), [_pixels(tile) for tile in tiles], TileGrid(columns, rows)


def _pixels(view: torch.Tensor) -> Pixels:
    view = view.detach().cpu()
    # numpy has no bf16: its bits.
    values = (view.view(torch.uint16) if view.dtype == torch.bfloat16 else view).numpy()
    return pixels_of_view(values, _DTYPES[view.dtype])
