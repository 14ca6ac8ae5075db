"""A server of the contract whose answers a test decides."""

from __future__ import annotations

import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from deepencoder_client import protocol

WIDTH = 8  # of a reply's rows; the real one's are 1280
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def details(code: grpc.StatusCode, message: str, retry_after: float) -> bytes:
    """grpc-status-details-bin with a RetryInfo."""
    retry = protocol.RetryInfo()
    retry.retry_delay.seconds = int(retry_after)
    retry.retry_delay.nanos = round((retry_after % 1) * 1e9)
    status = protocol.RpcStatus(code=code.value[0], message=message)
    status.details.add(type_url=RETRY_INFO, value=retry.SerializeToString())
    return status.SerializeToString()


def fail(context, code: grpc.StatusCode, message: str, retry_after: float | None = None, raw=None):
    """Ends a call with an error, as the real server does."""
    trailing = [("x-request-id", "id-of-the-server")]
    if retry_after is not None:
        trailing.append(("grpc-status-details-bin", details(code, message, retry_after)))
    if raw is not None:
        trailing.append(("grpc-status-details-bin", raw))
    context.set_trailing_metadata(trailing)
    context.abort(code, message)


def set_when_ended(context, event: threading.Event) -> None:
    """Sets `event` once the call's client is gone, or at once where it is: gRPC calls nothing back then."""
    if not context.add_callback(event.set):
        event.set()


def answer(request) -> object:
    """Two rows of fp32 whose first number is the image's width, or its file's size."""
    width = request.raw.width or len(request.encoded)
    reply = protocol.EncodeImageResponse(
        dtype=protocol.number_of("DType", "fp32"),
        shape=[2, WIDTH],
        data=struct.pack(f"<{2 * WIDTH}f", width, *[0.5] * (2 * WIDTH - 1)),
    )
    reply.geometry.image_width = width
    reply.geometry.global_rows = 1
    reply.timings.total = 0.25
    return reply


class FakeServer:
    """Serves `behaviour(request, context)`, a function that returns a reply or aborts.

    A test may set `registration`, of the same kind: it answers who registers shared memory.
    """

    def __init__(self, behaviour=None, *, credentials=None, address="127.0.0.1:0", workers=16):
        self.behaviour = behaviour or (lambda request, context: answer(request))
        self.registration = None
        self.requests = []
        self.metadata = []
        self.health = 1  # SERVING
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(workers))
        self._server.add_generic_rpc_handlers([self._handlers()])
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(grace=0).wait()

    @property
    def calls(self) -> int:
        """Encodes that arrived."""
        with self._lock:
            return len(self.requests)

    def _encode(self, request, context):
        with self._lock:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
        reply = self.behaviour(request, context)
        return reply if isinstance(reply, bytes) else reply.SerializeToString()

    def _info(self, request, context):
        info = protocol.ModelInfo(model="fake", embedding_width=WIDTH)
        info.modes.add(mode=protocol.number_of("Mode", "tiny"), name="tiny", rows=2)
        info.limits.max_image_bytes = 1 << 20
        return info.SerializeToString()

    def _register(self, request, context):
        if self.registration is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no memory is shared")
        return self.registration(request, context).SerializeToString()

    def _health(self, request, context):
        if request.service not in ("", "deepencoder.v1.VisionEncoder"):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return protocol.HealthCheckResponse(status=self.health).SerializeToString()

    def _handlers(self):
        methods = {
            protocol.ENCODE_IMAGE: (self._encode, protocol.EncodeImageRequest),
            protocol.GET_MODEL_INFO: (self._info, protocol.GetModelInfoRequest),
            protocol.REGISTER_REGION: (self._register, protocol.RegisterRegionRequest),
            protocol.HEALTH_CHECK: (self._health, protocol.HealthCheckRequest),
        }

        class Handlers(grpc.GenericRpcHandler):
            def service(self, call):
                if call.method not in methods:
                    return None
                function, message = methods[call.method]
                return grpc.unary_unary_rpc_method_handler(
                    function, request_deserializer=message.FromString
                )

        return Handlers()


def script(*steps):
    """A behaviour that takes the steps one after the other, then answers.

    A step: arguments of fail after the context.
    """
    left = list(steps)
    lock = threading.Lock()

    def behaviour(request, context):
        with lock:
            step = left.pop(0) if left else None
        if step is not None:
            fail(context, *step)
        return answer(request)

    return behaviour
