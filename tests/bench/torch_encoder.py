"""The DeepEncoder as a PyTorch user would write it: the peer of the benchmarks, on the CPU and on the GPU.

Random weights: only time and memory are compared. Two ways of adding the relative-position bias:
    dense      expanded to [B, heads, N, N] and handed to SDPA as its mask
    augmented  q | rel_h | rel_w against k | one-hot rows | one-hot columns: a head size of 64 + height + width,
               no [N, N] matrix, and any SDPA backend
"""
import torch
import torch.nn.functional as F
from torch import nn

SAM_WIDTH, SAM_HEADS, CLIP_WIDTH, CLIP_HEADS, WINDOW = 768, 12, 1024, 16, 14
GLOBAL_BLOCKS = (2, 5, 8, 11)


def dense(q, k, v, rel_h, rel_w):
    batch, heads, tokens, _ = q.shape
    bias = (rel_h.unsqueeze(-1) + rel_w.unsqueeze(-2)).view(batch, heads, tokens, tokens)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def augmented(q, k, v, rel_h, rel_w):
    batch, heads, tokens, size = q.shape
    height, width = rel_h.shape[-1], rel_w.shape[-1]
    at = torch.arange(tokens, device=q.device)
    one_hot = torch.cat([F.one_hot(at // width, height), F.one_hot(at % width, width)], 1).to(q.dtype)
    scale = size ** -0.5
    q = torch.cat([q, rel_h / scale, rel_w / scale], -1)
    k = torch.cat([k, one_hot.expand(batch, heads, -1, -1)], -1)
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


class SamAttention(nn.Module):
    def __init__(self, extent, attend):
        super().__init__()
        self.attend = attend
        self.qkv, self.proj = nn.Linear(SAM_WIDTH, 3 * SAM_WIDTH), nn.Linear(SAM_WIDTH, SAM_WIDTH)
        self.rel_h, self.rel_w = (nn.Parameter(0.1 * torch.randn(2 * extent - 1, 64)) for _ in range(2))
        at = torch.arange(extent)
        self.register_buffer("offset", at.unsqueeze(1) - at + extent - 1)

    def forward(self, x):
        batch, height, width, _ = x.shape
        qkv = self.qkv(x).view(batch, height * width, 3, SAM_HEADS, 64)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        grid = q.reshape(batch, SAM_HEADS, height, width, 64)
        rel_h = torch.einsum("bnyxc,ykc->bnyxk", grid, self.rel_h[self.offset]).flatten(2, 3)
        rel_w = torch.einsum("bnyxc,xkc->bnyxk", grid, self.rel_w[self.offset]).flatten(2, 3)
        out = self.attend(q, k, v, rel_h, rel_w)
        return self.proj(out.transpose(1, 2).reshape(batch, height, width, SAM_WIDTH))


class SamBlock(nn.Module):
    def __init__(self, grid, is_global, attend):
        super().__init__()
        self.windowed = not is_global
        self.norm1, self.norm2 = (nn.LayerNorm(SAM_WIDTH, eps=1e-6) for _ in range(2))
        self.attention = SamAttention(grid, attend) if is_global else SamAttention(WINDOW, dense)
        self.lin1, self.lin2 = nn.Linear(SAM_WIDTH, 4 * SAM_WIDTH), nn.Linear(4 * SAM_WIDTH, SAM_WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        y = self.in_windows(y) if self.windowed else self.attention(y)
        x = x + y
        return x + self.lin2(F.gelu(self.lin1(self.norm2(x))))

    def in_windows(self, y):
        batch, height, width, channels = y.shape
        y = F.pad(y, (0, 0, 0, -width % WINDOW, 0, -height % WINDOW))
        rows, columns = y.shape[1] // WINDOW, y.shape[2] // WINDOW
        y = y.view(batch, rows, WINDOW, columns, WINDOW, channels).transpose(2, 3)
        y = self.attention(y.reshape(-1, WINDOW, WINDOW, channels))
        y = y.view(batch, rows, columns, WINDOW, WINDOW, channels).transpose(2, 3)
        return y.reshape(batch, rows * WINDOW, columns * WINDOW, channels)[:, :height, :width]


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of [B, C, H, W]."""

    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class ClipLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(CLIP_WIDTH), nn.LayerNorm(CLIP_WIDTH)
        self.qkv, self.out = nn.Linear(CLIP_WIDTH, 3 * CLIP_WIDTH), nn.Linear(CLIP_WIDTH, CLIP_WIDTH)
        self.fc1, self.fc2 = nn.Linear(CLIP_WIDTH, 4 * CLIP_WIDTH), nn.Linear(4 * CLIP_WIDTH, CLIP_WIDTH)

    def forward(self, x):
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, CLIP_HEADS, 64)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, -1))
        y = self.fc1(self.norm2(x))
        return x + self.fc2(y * torch.sigmoid(1.702 * y))


class DeepEncoder(nn.Module):
    """[B, 3, side, side] -> [B, (side/64)^2, 1280]."""

    def __init__(self, side, attend=dense, sam_depth=12, clip_layers=24):
        super().__init__()
        grid = side // 16
        self.patch = nn.Conv2d(3, SAM_WIDTH, 16, 16)
        self.sam_positions = nn.Parameter(0.02 * torch.randn(1, grid, grid, SAM_WIDTH))
        self.sam = nn.ModuleList(SamBlock(grid, i in GLOBAL_BLOCKS, attend) for i in range(sam_depth))
        self.compressor = nn.Sequential(
            nn.Conv2d(SAM_WIDTH, 256, 1, bias=False), ChannelNorm(256, eps=1e-6),
            nn.Conv2d(256, 256, 3, padding=1, bias=False), ChannelNorm(256, eps=1e-6),
            nn.Conv2d(256, 512, 3, 2, 1, bias=False), nn.Conv2d(512, 1024, 3, 2, 1, bias=False))
        self.class_row = nn.Parameter(0.02 * torch.randn(1, 1, CLIP_WIDTH))
        self.clip_positions = nn.Parameter(0.02 * torch.randn(1, (grid // 4) ** 2 + 1, CLIP_WIDTH))
        self.pre_norm = nn.LayerNorm(CLIP_WIDTH)
        self.clip = nn.ModuleList(ClipLayer() for _ in range(clip_layers))
        self.projector = nn.Linear(2 * CLIP_WIDTH, 1280)

    def forward(self, pixels):
        x = self.patch(pixels).movedim(1, -1) + self.sam_positions
        for block in self.sam:
            x = block(x)
        features = self.compressor(x.movedim(-1, 1)).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_row.expand(features.shape[0], -1, -1), features], 1) + self.clip_positions
        x = self.pre_norm(x)
        for layer in self.clip:
            x = layer(x)
        return self.projector(torch.cat([x[:, 1:], features], -1))
