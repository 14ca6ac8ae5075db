"""python -m deepencoder_client: encode, info, health."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from .channel import DEFAULT_SERVER, SERVER_VARIABLE, Tls
from .client import DEFAULT_CONCURRENCY, Client
from .embeddings import Embeddings
from .errors import DeadlineError, DeepEncoderError, RpcError, UnavailableError
from .images import Image
from .options import DEFAULT_TIMEOUT, Alpha, DType, EncodeOptions, Gray16, Mode
from .pdf import DEFAULT_DPI, pdf_pages
from .results import Result
from .server_info import Health

OK, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3  # exit statuses, as those of the C++ program
SILENT = (UnavailableError, DeadlineError)  # the server was not there, or did not answer in time
TOKEN_VARIABLE = "DEEPENCODER_TOKEN"
SERVER_NAME_VARIABLE = "DEEPENCODER_SERVER_NAME"
TLS_FILES = (
    ("--root-certificates", "DEEPENCODER_ROOT_CERTIFICATES", "whom to trust"),
    ("--client-certificate", "DEEPENCODER_CLIENT_CERTIFICATE", "shown to the server"),
    ("--client-key", "DEEPENCODER_CLIENT_KEY", "its key"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit status."""
    arguments = _parser().parse_args(words)
    try:
        with _connect(arguments) as client:
            status: int = arguments.run(client, arguments)
            return status
    except SILENT as error:
        _complain(f"{error}")
        return UNREACHABLE
    except (DeepEncoderError, OSError) as error:
        _complain(f"{error}")
        return FAILED
    except ValueError as error:
        _complain(f"{error}")
        return USAGE
    except KeyboardInterrupt:
        return 130  # as a shell reports an interrupted program


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deepencoder_client",
        description="Images and PDF pages to the embeddings that DeepSeek-OCR's language model "
        "reads. Exit status: 0 done, 1 failed, 2 wrong usage, 3 no server or no answer in time.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    encode = commands.add_parser(
        "encode",
        help="embed images and PDF pages",
        description="Embeds images and the pages of PDF files, and writes a file for each.",
    )
    encode.add_argument("images", nargs="+", metavar="IMAGE", help="an image or a PDF file")
    encode.add_argument("--out", metavar="DIR", help="where the files go; without it: nowhere")
    encode.add_argument(
        "--format", choices=("safetensors", "npy"), default="safetensors", help="of the files"
    )
    encode.add_argument("--mode", choices=get_args(Mode), default="gundam")
    encode.add_argument(
        "--max-tiles", type=int, metavar="N", help="most tiles in gundam; default: the server's"
    )
    encode.add_argument("--dtype", choices=get_args(DType), default="bf16")
    encode.add_argument("--alpha", choices=get_args(Alpha), help="transparency")
    encode.add_argument("--gray16", choices=get_args(Gray16), help="16-bit greyscale")
    encode.add_argument(
        "--dpi", type=float, default=DEFAULT_DPI, help="of PDF pages; default: %(default)g"
    )
    encode.add_argument(
        "--concurrency",
        type=int,
        default=DEFAULT_CONCURRENCY,
        metavar="N",
        help="images in flight; default: %(default)s",
    )
    encode.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="for an image, retries included; default: %(default)g",
    )
    encode.add_argument("--request-id", metavar="TEXT", help="names the calls in the server's logs")
    encode.add_argument("--json", action="store_true", help="a JSON object an image, one a line")
    encode.add_argument("--quiet", action="store_true", help="print nothing but errors")
    encode.set_defaults(run=_encode)

    info = commands.add_parser("info", help="what a server serves")
    info.add_argument("--json", action="store_true", help="one JSON object")
    info.set_defaults(run=_info)

    health = commands.add_parser("health", help="whether a server is ready, for probes")
    health.set_defaults(run=_health)

    for command in (encode, info, health):
        _add_connection(command)
    return parser


def _add_connection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--server",
        metavar="ADDRESS",
        help=f"host:port or unix:PATH; default: ${SERVER_VARIABLE}, else {DEFAULT_SERVER}",
    )
    group.add_argument("--tls", action="store_true", help="encrypt; implied by the next three")
    for flag, variable, what in TLS_FILES:
        group.add_argument(
            flag,
            metavar="PEM",
            default=os.environ.get(variable) or None,
            help=f"{what}; default: ${variable}",
        )
    group.add_argument(
        "--server-name",
        default=os.environ.get(SERVER_NAME_VARIABLE) or None,
        help=f"in the server's certificate, if not its address; default: ${SERVER_NAME_VARIABLE}",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"bearer token; default: ${TOKEN_VARIABLE} (an argument would be seen by all users)",
    )


def _connect(arguments: argparse.Namespace) -> Client:
    tls: Tls | bool = arguments.tls
    if arguments.root_certificates or arguments.client_certificate or arguments.client_key:
        tls = True
    if tls:
        tls = Tls(
            arguments.root_certificates,
            arguments.client_certificate,
            arguments.client_key,
            arguments.server_name,
        )
    token = os.environ.get(TOKEN_VARIABLE)
    if arguments.token_file:
        token = Path(arguments.token_file).read_text().strip()
    return Client(arguments.server, tls=tls, token=token or None)


# ---------------------------------------------------------------- encode


def _encode(client: Client, arguments: argparse.Namespace) -> int:
    names, stems, images = _expand(arguments)
    files = _output_files(arguments, names, stems)
    options: EncodeOptions = {
        "mode": arguments.mode,
        "max_tiles": arguments.max_tiles,
        "dtype": arguments.dtype,
        "alpha": arguments.alpha,
        "gray16": arguments.gray16,
        "timeout": arguments.timeout,
        "request_id": arguments.request_id,
    }
    failed = unreachable = 0
    for result in client.encode_many(
        images,
        concurrency=arguments.concurrency,
        progress=_can_show_progress(arguments, len(images)),
        **options,
    ):
        name, file = names[result.index], files[result.index]
        error = result.error
        if result.embeddings is not None and file is not None:
            try:
                result.embeddings.save(file)
            except OSError as failure:
                error = failure
        if error is not None:
            failed += 1
            unreachable += isinstance(error, SILENT)
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            _complain(f"{name}: {why}")
        if arguments.json:
            print(json.dumps(_as_json(name, file, result, error, arguments.mode)))
        elif result.embeddings is not None and error is None and not arguments.quiet:
            print(_as_text(name, file, result.embeddings, arguments.mode))
    if failed == 0:
        return OK
    return UNREACHABLE if unreachable == len(images) else FAILED


def _expand(arguments: argparse.Namespace) -> tuple[list[str], list[str], list[Image]]:
    """Names for people, stems of output files, and images: one of a file, or of a PDF's page."""
    names: list[str] = []
    stems: list[str] = []
    images: list[Image] = []
    for path in arguments.images:
        stem = Path(path).stem
        if not path.lower().endswith(".pdf"):
            names.append(path)
            stems.append(stem)
            images.append(path)
            continue
        pages = pdf_pages(path, dpi=arguments.dpi)
        names.extend(f"{path}-{page.number:04}" for page in pages)
        stems.extend(f"{stem}-{page.number:04}" for page in pages)
        images.extend(pages)
    return names, stems, images


def _output_files(
    arguments: argparse.Namespace, names: Sequence[str], stems: Sequence[str]
) -> Sequence[str | None]:
    """DIR/STEM.safetensors for each image: scan.png gives scan, page 7 of scan.pdf scan-0007."""
    if arguments.out is None:
        return [None] * len(names)
    files: dict[str, str] = {}
    for name, stem in zip(names, stems):  # noqa: B905 (equally long)
        file = os.path.join(arguments.out, f"{stem}.{arguments.format}")
        if file in files:
            raise ValueError(f"{files[file]} and {name} would both be written to {file}")
        files[file] = name
    os.makedirs(arguments.out, exist_ok=True)
    return list(files)


def _can_show_progress(arguments: argparse.Namespace, count: int) -> bool:
    """A bar if nothing else is printed, tqdm is there and somebody looks."""
    if count < 2 or not (arguments.quiet or arguments.json) or not sys.stderr.isatty():
        return False
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return False
    return True


def _as_text(name: str, file: str | None, embeddings: Embeddings, mode: str) -> str:
    geometry, timings = embeddings.geometry, embeddings.timings
    tiles = "no tiles"
    if geometry.tile_side:
        tiles = f"{geometry.tile_columns} x {geometry.tile_rows} tiles of {geometry.tile_side}"
    times = ", ".join(
        f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in dataclasses.asdict(timings).items()
    )
    lines = [
        f"{name}  {embeddings.dtype} [{embeddings.shape[0]}, {embeddings.shape[1]}]",
        f"  {mode}, {geometry.image_width} x {geometry.image_height} pixels: {tiles}, global view "
        f"of {geometry.base_side}; rows {geometry.local_rows} + {geometry.global_rows} + 1",
        f"  {times}",
    ]
    if file is not None:
        lines.append(f"  written to {file}")
    return "\n".join(lines)


def _as_json(
    name: str, file: str | None, result: Result, error: Exception | None, mode: str
) -> dict[str, Any]:
    """The same keys as the C++ program's."""
    if error is not None or result.embeddings is None:
        code = error.code.name if isinstance(error, RpcError) else type(error).__name__
        message = error.details if isinstance(error, RpcError) else str(error)
        return {"image": name, "ok": False, "code": code, "message": message}
    embeddings = result.embeddings
    answer = {
        "image": name,
        "ok": True,
        "mode": mode,
        "dtype": embeddings.dtype,
        "shape": list(embeddings.shape),
        "geometry": dataclasses.asdict(embeddings.geometry),
        "seconds": dataclasses.asdict(embeddings.timings),
    }
    return answer if file is None else {**answer, "file": file}


# ---------------------------------------------------------------- info, health


def _info(client: Client, arguments: argparse.Namespace) -> int:
    info = client.info()
    if arguments.json:
        print(json.dumps(dataclasses.asdict(info)))
        return OK
    print(f"{info.model} on {info.device}, computing in {info.compute_dtype}")
    print(f"  weights {info.weights_fingerprint}" + ("  SYNTHETIC" if info.synthetic else ""))
    print(f"  server {info.version} ({info.commit})")
    print(f"  images up to {info.max_image_bytes} bytes, {info.max_image_pixels} pixels")
    print(f"  tiles: {info.default_max_tiles}, up to {info.max_max_tiles} if asked")
    for mode in info.modes:
        tiles = f", tiles of {mode.tile_side}" if mode.tile_side else ""
        print(f"  {mode.name:8}{mode.rows:4} tokens, view of {mode.base_side}{tiles}")
    return OK


def _health(client: Client, arguments: argparse.Namespace) -> int:
    health = client.health()
    print(health.name)
    return OK if health is Health.SERVING else FAILED


def _complain(text: str) -> None:
    print(f"deepencoder_client: {text}", file=sys.stderr)
