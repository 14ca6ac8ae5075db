// An image file of any format: header, pixels, views.
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoder/image/decode.h"
#include "encoder/image/view_plan.h"
#include "encoder/image/views.h"
#include "tests/fuzz/allocation_peak.h"
#include "tests/fuzz/fuzz_target.h"

namespace deepencoder::fuzz {
namespace {

// Small, so that thousands of inputs a second are tried.
constexpr int64_t kMaxPixels = 1 << 18;
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr uint64_t kViewsOneIn = 16;  // resampling costs more than most decoding here

void RequireViews(const RgbImage& image, uint64_t choice) {
  const ModeSpec& mode = Modes()[choice % Modes().size()];
  const auto plan = PlanViews(image.width(), image.height(), mode.mode, kDefaultMaxTiles);
  if (!plan.ok()) return RequireRefusal(plan.status());
  const std::vector<View> views = RenderViews(image, *plan);
  Require(static_cast<int>(views.size()) == plan->views(), "as many views as planned");
  for (const View& view : views) {
    Require(view.rgb.size() == static_cast<size_t>(view.side) * view.side * 3, "views are full");
  }
}

}  // namespace

void TryInput(const uint8_t* data, size_t size) {
  const uint64_t choice = ChoiceOf(data, size);
  DecodeOptions options;
  options.max_bytes = kMaxFileBytes;
  options.max_pixels = kMaxPixels;
  options.alpha = (choice & 1) != 0 ? AlphaPolicy::kWhite : AlphaPolicy::kDrop;
  options.gray16 = (choice & 2) != 0 ? Gray16Policy::kSaturate : Gray16Policy::kHighByte;

  const auto file = AsBytes(data, size);
  const absl::StatusOr<ImageHeader> header = ReadHeader(file, options);
  const AllocationPeak peak;
  const absl::StatusOr<RgbImage> image = DecodeImage(file, options);
  if (!header.ok()) {
    RequireRefusal(header.status());
    Require(image.status() == header.status(), "what the header refuses is not decoded");
    return;
  }
  const bool past_bound =
      header->format == ImageFormat::kWebp && header->table_bytes == kMaxWebpTableBytes;
  Require(peak.bytes() <= DecodeBytes(*header) || past_bound,
          absl::StrCat("DecodeBytes is an upper bound: ", std::string(Name(header->format)), " of ",
                       header->width, " x ", header->height, " took ", peak.bytes(), ", not ",
                       DecodeBytes(*header)));
  if (!image.ok()) return RequireRefusal(image.status());
  const bool upright = image->width() == header->width && image->height() == header->height;
  const bool turned = image->width() == header->height && image->height() == header->width;
  Require(upright || turned, "the picture has the size that the header says");
  if (choice / 4 % kViewsOneIn == 0) RequireViews(*image, choice / 64);
}

}  // namespace deepencoder::fuzz
