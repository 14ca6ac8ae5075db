"""One image's call: what is sent, and what becomes of the reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import grpc

from .embeddings import Embeddings
from .errors import RpcError
from .images import Payload
from .wire import build_request, parse_reply

if TYPE_CHECKING:
    from .shared_memory import Block, Share

_REFUSALS = (
    grpc.StatusCode.NOT_FOUND,  # the server has forgotten the region (it restarted, or long idle)
    grpc.StatusCode.FAILED_PRECONDITION,  # or cannot use it
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,  # it shares none any more
)


class EncodeCall:
    """In shared memory if there is some, with room; else in the messages."""

    def __init__(self, payload: Payload, options: Mapping[str, Any], share: Share | None) -> None:
        self._options = options
        self._payload: Payload | None = None  # to be sent whole after all
        self._block: Block | None = None
        self.share = share
        if share is not None:
            self._block = share.place(payload, options)
        if share is None or self._block is None:
            self._request = build_request(payload, options)
        else:
            self._payload = payload
            self._request = build_request(payload, options, share.handle, self._block)

    @property
    def found_no_room(self) -> bool:
        """There is shared memory, but none was free."""
        return self.share is not None and self._block is None

    def next_request(self) -> bytes:
        """What the next attempt sends."""
        return self._request

    def failed(self, error: RpcError) -> None:
        """After each attempt that failed."""
        # Without the call's name in its answer it is not the server's: that may still write.
        if error.request_id is None:
            self.abandoned()
            if error.code not in _REFUSALS:  # then want_whole decides
                # In the same memory that late writing could change the next attempt's rows.
                self._go_whole()

    def abandoned(self) -> None:
        """The call ended without an answer."""
        if self._block is not None:
            self._block.abandon()

    def want_whole(self, error: RpcError) -> bool:
        """After a call that failed for good: whether its memory was the reason.

        Then the request is one without, to be sent now.
        """
        return error.code in _REFUSALS and self._go_whole()

    def _go_whole(self) -> bool:
        if self._block is None or self._payload is None:
            return False
        self._request = build_request(self._payload, self._options)
        self.release()
        return True

    def embeddings(self, reply: bytes) -> Embeddings:
        """The reply's. Raises ReplyError."""
        return parse_reply(reply, self._block)

    def release(self) -> None:
        """The call is over. Memory with rows that somebody holds stays."""
        if self._block is not None:
            self._block.release()
        self._block = self._payload = None
