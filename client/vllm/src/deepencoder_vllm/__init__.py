"""DeepSeek-OCR on vLLM with image embeddings from a deepencoder server.

Three ways, each a module of its own: `connector` (vLLM fetches the rows of every image itself),
`prompt_embeds` (the caller sends the rows in the prompt) and `ec_files` (the rows are left in a
folder that vLLM's ECExampleConnector reads). The README says which to take.

Only `connector` imports vLLM, and only it and `prompt_embeds` need PyTorch.
"""

from .ec_files import write_ec_file
from .geometry import TileGrid, prompt_rows, tile_grid
from .versions import CHECKED_VLLM

__all__ = ["CHECKED_VLLM", "TileGrid", "prompt_rows", "tile_grid", "write_ec_file"]
