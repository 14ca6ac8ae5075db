"""Memory shared with a server on this host: images and rows go through it, not through a socket.

Either kind of memory is locked (flock) before anybody can find it and for as long as this process
has it, so the server sees when the process has ended, however it ended, and lets go of the memory.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import fcntl
import mmap
import os
import secrets
import stat
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import numpy as np

from . import protocol
from .errors import RpcError
from .images import Payload
from .server_info import ModelInfo

FOLDER = "/dev/shm"  # where shm_open keeps its objects
NAME_START = "deepencoder-client-"  # as the server's --shared-memory-prefix wants it
_ALIGNMENT = 64  # of a block: a cache line, and enough for any element
_WORN = 0.25  # the part given up after which a new object is better


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _new_name() -> str:
    return NAME_START + secrets.token_hex(16)


class Block:
    """Bytes of a pool for one call: the image, and behind it room for the rows."""

    def __init__(self, pool: Pool, offset: int, image_bytes: int, reply_bytes: int) -> None:
        self.pool = pool
        self.offset = offset
        self.image_bytes = image_bytes
        self.reply_offset = offset + _aligned(image_bytes)
        self.reply_bytes = reply_bytes
        self._lent = False
        self._abandoned = False

    def abandon(self) -> None:
        """Never gives the bytes out again: the server may still write there."""
        self._abandoned = True

    def rows(self, size: int) -> Any:
        """The first `size` bytes of the reply; when nothing refers to them the block is free."""
        memory = self.pool.memory
        rows = np.frombuffer(memory, np.uint8, count=size, offset=self.reply_offset)
        rows.flags.writeable = False
        self._lent = True
        weakref.finalize(rows, self._give_back).atexit = False
        return rows

    def release(self) -> None:
        """The call is over. Rows that were taken keep the block."""
        if not self._lent:
            self._give_back()

    def _give_back(self) -> None:
        end = self.reply_offset + _aligned(self.reply_bytes)
        self.pool.give_back(self.offset, end - self.offset, self._abandoned)


class Pool:
    """Memory that a server can open, given out in blocks. Thread-safe."""

    def __init__(self, file: int, size: int, name: str) -> None:
        """Takes over the file, which has `size` bytes, and locks it."""
        weakref.finalize(self, os.close, file)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.file = file
        self.size = size
        self.name = name
        self.memory = mmap.mmap(file, size)
        self._free = [(0, size)]  # (offset, size), ascending; no two touch
        # Blocks come back wherever rows are collected, even in the middle of take: they wait here.
        self._returned: deque[tuple[int, int, bool]] = deque()
        self._abandoned = 0
        self._lock = threading.Lock()

    def registration(self) -> bytes:
        """The message that tells a server where to find it."""
        raise NotImplementedError

    def link(self) -> None:
        """Gives it its name, if a server needs that. Raises OSError."""

    def unlink(self) -> None:
        """Removes the name, if it has one; whoever has opened the object keeps it."""

    def take(self, image_bytes: int, reply_bytes: int) -> Block | None:
        """A block, or None if there is no room."""
        size = _aligned(image_bytes) + _aligned(reply_bytes)
        with self._lock:
            self._collect()
            for index, (offset, room) in enumerate(self._free):
                if room < size:
                    continue
                if room == size:
                    del self._free[index]
                else:
                    self._free[index] = (offset + size, room - size)
                return Block(self, offset, image_bytes, reply_bytes)
        return None

    def give_back(self, offset: int, size: int, abandoned: bool) -> None:
        """From Block."""
        self._returned.append((offset, size, abandoned))

    @property
    def worn(self) -> bool:
        """Whether much of it was abandoned, and a new pool should take its place."""
        return self._abandoned > _WORN * self.size

    def _collect(self) -> None:
        while self._returned:
            offset, size, abandoned = self._returned.popleft()
            if abandoned:
                self._abandoned += size
                continue
            index = bisect.bisect_left(self._free, (offset, 0))
            if index < len(self._free) and offset + size == self._free[index][0]:
                size += self._free.pop(index)[1]
            if index > 0 and sum(self._free[index - 1]) == offset:
                offset, before = self._free.pop(index - 1)
                size += before
                index -= 1
            self._free.insert(index, (offset, size))


class Memfd(Pool):
    """Memory whose size cannot change any more: a server that sees this process may map it."""

    def __init__(self, size: int) -> None:
        """Raises OSError: no memory, or no such system."""
        name = _new_name()
        file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        except BaseException:
            os.close(file)
            raise
        super().__init__(file, size, name)

    def registration(self) -> bytes:
        """The message that names the process and its descriptor."""
        place = {"pid": os.getpid(), "fd": self.file}
        request = protocol.RegisterRegionRequest(key=self.name, size=self.size, memfd=place)
        message: bytes = request.SerializeToString()
        return message


class NamedObject(Pool):
    """A POSIX shared memory object: any server with the same /dev/shm can open it.

    It has a name there only while a server is asked to open it: whoever gives up earlier, as a task
    that is cancelled, has nothing to remove.
    """

    def __init__(self, size: int) -> None:
        """Raises OSError: no room in /dev/shm, or no such system."""
        _remove_left_overs()
        # Without a name, at least until it is locked.
        file = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # All pages now: a full /dev/shm is then an error here, not a signal at a later access.
            os.posix_fallocate(file, 0, size)
        except BaseException:
            os.close(file)
            raise
        super().__init__(file, size, _new_name())

    def link(self) -> None:
        """Gives it its name. Raises OSError."""
        folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Only with a folder's descriptor does Python follow the link to the file.
            os.link(
                f"/proc/self/fd/{self.file}", self.name,
                src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True,
            )  # fmt: skip
        finally:
            os.close(folder)

    def registration(self) -> bytes:
        """The message that names the object."""
        request = protocol.RegisterRegionRequest(key=f"/{self.name}", size=self.size)
        message: bytes = request.SerializeToString()
        return message

    def unlink(self) -> None:
        """Removes the name; whoever has opened the object keeps it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(FOLDER, self.name))


# The better one first.
KINDS: tuple[type[Memfd] | type[NamedObject], ...] = (
    (Memfd, NamedObject) if hasattr(os, "memfd_create") else (NamedObject,)
)


@contextlib.contextmanager
def offered(pool: Pool) -> Iterator[None]:
    """Around its registration: it has its name meanwhile, if it needs one.

    A refusal passes if the server may take the next of KINDS. It is in another container than this
    process, or older than memfds here.
    """
    try:
        pool.link()
        yield
    except RpcError as error:
        refused = error.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
        if not refused or type(pool) is KINDS[-1]:
            raise
    finally:
        pool.unlink()  # the server has it open, or will not have it


def _remove_left_overs() -> None:
    """Removes the names of clients who were killed between naming and registering their object."""
    try:
        names = os.listdir(FOLDER)
    except FileNotFoundError:
        raise OSError(errno.ENOSYS, f"no POSIX shared memory here: {FOLDER} is missing") from None
    for name in names:
        if not name.startswith(NAME_START):
            continue
        path = os.path.join(FOLDER, name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it
                os.unlink(path)
        except OSError:
            pass
        finally:
            os.close(file)


class Share:
    """A registered pool with what the server said of itself. Thread-safe."""

    def __init__(self, pool: Pool, handle: str, info: ModelInfo) -> None:
        self.pool = pool
        self.handle = handle
        self._info = info

    def place(self, payload: Payload, options: Mapping[str, Any]) -> Block | None:
        """Copies an image into a block that has room for its reply; None: no room now."""
        reply_bytes = self._reply_bytes(options)
        size = len(payload.data)
        # The server refuses these, and says why, when it gets them whole.
        if reply_bytes == 0 or size == 0 or size > self._info.max_image_bytes:
            return None
        block = self.pool.take(size, reply_bytes)
        if block is not None:
            self.pool.memory[block.offset : block.offset + size] = payload.data
        return block

    def _reply_bytes(self, options: Mapping[str, Any]) -> int:
        """The most bytes that the reply can have."""
        modes = {mode.name: mode for mode in self._info.modes}
        mode = modes.get(options.get("mode", "gundam"))
        if mode is None:
            return 0
        rows = mode.rows
        if mode.tile_side != 0:
            # c x r tiles add 10 r (10 c + 1) rows, and r is at most c r.
            rows += 110 * (options.get("max_tiles") or self._info.default_max_tiles)
        element = 4 if options.get("dtype") == "fp32" else 2
        return rows * self._info.embedding_width * element
