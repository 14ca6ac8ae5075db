#include "encoder/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "encoder/image/transpose.h"
#include "encoder/resample/bicubic_filter.h"

namespace deepencoder {
namespace {

constexpr size_t kChannels = 3;

size_t MaxTaps(int in, int out) {
  const double stretch = std::max(static_cast<double>(in) / out, 1.0);
  return std::min(static_cast<size_t>(in), static_cast<size_t>(std::ceil(2 * stretch)) * 2 + 1);
}

// All weights of an axis, packed for a kernel.
class PackedAxis {
 public:
  PackedAxis(int in, int out, const ResampleKernel& kernel) {
    outputs_.reserve(static_cast<size_t>(out));
    for (int o = 0; o < out; ++o) {
      const AxisWeights axis = BicubicWeights(in, out, o);
      const size_t at = packed_.size();
      packed_.resize(at + kernel.packed_words(axis.weights.size()));
      kernel.pack(axis.weights, packed_.data() + at);
      outputs_.push_back({static_cast<size_t>(axis.first), axis.weights.size(), at});
    }
  }

  struct Output {
    size_t first, taps, packed_at;
  };
  const std::vector<Output>& outputs() const { return outputs_; }
  const int32_t* packed(const Output& output) const { return packed_.data() + output.packed_at; }

 private:
  std::vector<Output> outputs_;
  std::vector<int32_t> packed_;
};

// The horizontal pass, up to kRows rows at once.
//
// The kernel adds whole rows, so a block of rows is transposed, its columns combined as rows of
// kRows bytes, and the result transposed back.
class HorizontalPass {
 public:
  static constexpr size_t kRows = 64;

  HorizontalPass(const RgbImage& image, int width, const ResampleKernel& kernel)
      : image_(image), width_(static_cast<size_t>(width)), kernel_(kernel) {
    if (!blocked()) return;
    axis_.emplace(image.width(), width, kernel);
    columns_.resize(static_cast<size_t>(image.width()) * kChannels * kRows);
    results_.resize(width_ * kChannels * kRows);
  }

  size_t row_bytes() const { return width_ * kChannels; }

  // Rows [top, top + rows) of the image into `to`, row_bytes() apart. rows <= kRows.
  void Run(int top, size_t rows, uint8_t* to) {
    if (blocked()) {
      RunBlocked(top, rows, to);
    } else {
      RunWide(top, rows, to);
    }
  }

 private:
  // Wider ones would need more than 6 MiB for a block of columns, and tables of weights to match.
  static constexpr int kMaxBlockedWidth = 32768;
  bool blocked() const { return image_.width() <= kMaxBlockedWidth; }

  void RunBlocked(int top, size_t rows, uint8_t* to) {
    const size_t in_bytes = static_cast<size_t>(image_.width()) * kChannels;
    TransposeBytes(image_.mat().ptr(top), in_bytes, rows, in_bytes, columns_.data(), kRows);
    constexpr size_t kColumnBytes = kChannels * kRows;  // of one pixel of all rows
    uint8_t* result = results_.data();
    for (const PackedAxis::Output& output : axis_->outputs()) {
      kernel_.run(columns_.data() + output.first * kColumnBytes, kColumnBytes, output.taps,
                  axis_->packed(output), result, kColumnBytes);
      result += kColumnBytes;
    }
    TransposeBytes(results_.data(), kRows, row_bytes(), rows, to, row_bytes());
  }

  // One output column after the other, so that the weights of one are all that is held.
  void RunWide(int top, size_t rows, uint8_t* to) {
    for (size_t o = 0; o < width_; ++o) {
      const AxisWeights axis =
          BicubicWeights(image_.width(), static_cast<int>(width_), static_cast<int>(o));
      for (size_t y = 0; y < rows; ++y) {
        const uint8_t* from = image_.mat().ptr(top + static_cast<int>(y)) +
                              static_cast<size_t>(axis.first) * kChannels;
        int32_t sum[kChannels];
        std::fill_n(sum, kChannels, 1 << (kWeightBits - 1));
        for (const int32_t weight : axis.weights) {
          for (size_t c = 0; c < kChannels; ++c) sum[c] += weight * *from++;
        }
        for (size_t c = 0; c < kChannels; ++c) {
          to[y * row_bytes() + o * kChannels + c] =
              static_cast<uint8_t>(std::clamp(sum[c] >> kWeightBits, 0, 255));
        }
      }
    }
  }

  const RgbImage& image_;
  size_t width_;
  const ResampleKernel& kernel_;
  std::optional<PackedAxis> axis_;
  std::vector<uint8_t> columns_;  // [image width][3][kRows]
  std::vector<uint8_t> results_;  // [width][3][kRows]
};

// Rows of the horizontal pass that the vertical one still needs: a buffer that slides down the image.
class RowWindow {
 public:
  RowWindow(const RgbImage& image, int width, size_t max_taps, const ResampleKernel& kernel)
      : pass_(image, width, kernel),
        height_(static_cast<size_t>(image.height())),
        capacity_(max_taps + HorizontalPass::kRows),
        rows_(capacity_ * pass_.row_bytes()) {}

  // Row `first`, with those up to `first + count` after it. `first` never goes back.
  const uint8_t* Rows(size_t first, size_t count) {
    while (end_ < first + count) {
      const size_t n = std::min(HorizontalPass::kRows, height_ - end_);
      if (end_ - begin_ + n > capacity_) DropBefore(first);
      pass_.Run(static_cast<int>(end_), n, At(end_));
      end_ += n;
    }
    return At(first);
  }

 private:
  uint8_t* At(size_t row) { return rows_.data() + (row - begin_) * pass_.row_bytes(); }
  void DropBefore(size_t row) {
    row = std::min(row, end_);
    std::memmove(rows_.data(), At(row), (end_ - row) * pass_.row_bytes());
    begin_ = row;
  }

  HorizontalPass pass_;
  size_t height_, capacity_;
  std::vector<uint8_t> rows_;
  size_t begin_ = 0, end_ = 0;  // rows [begin_, end_) of the image's height are in the buffer
};

void ResizeHeight(const std::function<const uint8_t*(size_t first, size_t count)>& rows,
                  int in_height, int height, size_t row_bytes, const ResampleKernel& kernel,
                  const RowSink& sink) {
  std::vector<uint8_t> row(row_bytes);
  std::vector<int32_t> packed;
  for (int y = 0; y < height; ++y) {
    const AxisWeights axis = BicubicWeights(in_height, height, y);
    const size_t taps = axis.weights.size();
    packed.resize(kernel.packed_words(taps));
    kernel.pack(axis.weights, packed.data());
    kernel.run(rows(static_cast<size_t>(axis.first), taps), row_bytes, taps, packed.data(),
               row.data(), row_bytes);
    sink(y, row.data());
  }
}

}  // namespace

void ResizeBicubic(const RgbImage& image, int width, int height, const RowSink& sink) {
  ResizeBicubic(image, width, height, ResampleKernels().back(), sink);
}

void ResizeBicubic(const RgbImage& image, int width, int height, const ResampleKernel& kernel,
                   const RowSink& sink) {
  const size_t row_bytes = static_cast<size_t>(width) * kChannels;
  if (width == image.width() && height == image.height()) {
    for (int y = 0; y < height; ++y) sink(y, image.mat().ptr(y));
  } else if (width == image.width()) {
    const auto rows = [&](size_t first, size_t) { return image.data() + first * row_bytes; };
    ResizeHeight(rows, image.height(), height, row_bytes, kernel, sink);
  } else if (height == image.height()) {
    RowWindow window(image, width, 1, kernel);
    for (int y = 0; y < height; ++y) sink(y, window.Rows(static_cast<size_t>(y), 1));
  } else {
    RowWindow window(image, width, MaxTaps(image.height(), height), kernel);
    const auto rows = [&](size_t first, size_t count) { return window.Rows(first, count); };
    ResizeHeight(rows, image.height(), height, row_bytes, kernel, sink);
  }
}

}  // namespace deepencoder
