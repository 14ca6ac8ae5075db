#include "client/diff_heat.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace deepencoder::client {
namespace {

// Pixels.
constexpr int kMargin = 36, kPanelGap = 44, kTitle = 92, kPanelTitle = 40;
constexpr int kSeparatorLine = 40, kScaleBar = 84, kMinWidth = 760;
constexpr double kOverPicture = 0.72;  // opacity of a cell where there is a picture below

// From dark to bright with even steps of lightness; also in print and without colour vision.
constexpr std::array<Colour, 7> kHeat = {
    Colour{12, 8, 38},    Colour{66, 10, 104},  Colour{126, 30, 108}, Colour{188, 55, 84},
    Colour{236, 105, 37}, Colour{251, 165, 10}, Colour{252, 255, 164}};

Colour HeatColour(double place) {
  const double at = std::clamp(place, 0.0, 1.0) * (kHeat.size() - 1);
  const auto from = std::min(static_cast<size_t>(at), kHeat.size() - 2);
  const double part = at - static_cast<double>(from);
  const auto mix = [part](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(std::lround(x + (y - x) * part));
  };
  const Colour &x = kHeat[from], &y = kHeat[from + 1];
  return {mix(x.red, y.red), mix(x.green, y.green), mix(x.blue, y.blue)};
}

void DrawPanel(Canvas& canvas, const BlockPanel& panel, const std::vector<double>& cosines,
               const HeatScale& scale) {
  const Block& block = *panel.block;
  const auto colour = [&](int line, int column) {
    return scale.Of(cosines[static_cast<size_t>(block.RowOf(line, column))]);
  };
  canvas.Write(panel.x, panel.y - 20, block.name, {18, true}, kTextColour);
  canvas.Write(panel.x + TextWidth(block.name, {18, true}) + 12, panel.y - 20,
               absl::StrCat("rows ", block.first_row, " to ", block.first_row + block.rows() - 1,
                            "; newlines at the right"),
               {15}, kNoteColour);
  const Box tokens = panel.Tokens();
  const bool picture = !block.picture.empty();
  if (picture) canvas.Paste(tokens.x, tokens.y, Scaled(block.picture, tokens.width, tokens.height));
  for (int line = 0; line < block.lines; ++line) {
    for (int column = 0; column < block.columns; ++column) {
      canvas.Fill(panel.Cell(line, column), colour(line, column), picture ? kOverPicture : 1);
    }
    canvas.Fill(panel.Newline(line), colour(line, block.columns));
  }
  const int width = tokens.width / block.tiles.columns, height = tokens.height / block.tiles.rows;
  for (int i = 0; i < block.tiles.columns * block.tiles.rows; ++i) {
    canvas.Frame({tokens.x + i % block.tiles.columns * width,
                  tokens.y + i / block.tiles.columns * height, width, height},
                 kPaperColour, 1);
  }
  WriteRowNumbers(canvas, panel);
}

void DrawScale(Canvas& canvas, const HeatScale& scale, int y) {
  constexpr int kBarWidth = 480, kBarHeight = 18;
  canvas.Write(kMargin, y + kBarHeight / 2, "1 - cosine", {15}, kTextColour);
  const int left = kMargin + TextWidth("1 - cosine", {15}) + 28;
  for (int x = 0; x < kBarWidth; ++x) {
    canvas.Fill({left + x, y, 1, kBarHeight}, HeatColour(static_cast<double>(x) / (kBarWidth - 1)));
  }
  const int decades = scale.high - scale.low;
  const int step = (decades + 7) / 8;
  for (int decade = 0; decade <= decades; decade += step) {
    const int x = left + (kBarWidth - 1) * decade / decades;
    canvas.Fill({x, y + kBarHeight, 1, 5}, kTextColour);
    const int exponent = scale.low + decade;
    canvas.WriteCentred(x, y + kBarHeight + 16, exponent == 0 ? "1" : absl::StrCat("1e", exponent),
                        {14}, kTextColour);
  }
}

}  // namespace

std::vector<Arrangement> ArrangementsOf(int64_t rows) {
  std::vector<Arrangement> found;
  for (const ModeSpec& spec : Modes()) {
    if (spec.tile_side == 0 && LayoutOf(spec.mode, {}).rows == rows) {
      found.push_back({spec.mode, {}});
    }
  }
  for (int count = 2; count <= kMaxMaxTiles; ++count) {
    for (int columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const TileGrid tiles{columns, count / columns};
      if (LayoutOf(deepencoder::Mode::kGundam, tiles).rows == rows) {
        found.push_back({deepencoder::Mode::kGundam, tiles});
      }
    }
  }
  return found;
}

double HeatScale::Place(double cosine) const {
  if (std::isnan(cosine)) return 1;
  const double distance = 1 - cosine;
  if (distance <= 0) return 0;
  return std::clamp((std::log10(distance) - low) / (high - low), 0.0, 1.0);
}

Colour HeatScale::Of(double cosine) const { return HeatColour(Place(cosine)); }

HeatScale ScaleFor(const std::vector<double>& cosines) {
  constexpr double kLeast = 1e-12, kMost = 1;  // of 1 - cosine; below it is rounding
  double least = kMost, most = kLeast;
  for (const double cosine : cosines) {
    if (std::isnan(cosine) || cosine >= 1) continue;
    const double distance = std::clamp(1 - cosine, kLeast, kMost);
    least = std::min(least, distance);
    most = std::max(most, distance);
  }
  if (least > most) return {};  // all are equal
  HeatScale scale;
  scale.low = static_cast<int>(std::floor(std::log10(least)));
  scale.high = std::max(static_cast<int>(std::ceil(std::log10(most))), scale.low + 1);
  return scale;
}

Canvas DrawHeat(const std::string& title, const std::string& note, const std::vector<Block>& blocks,
                const std::vector<double>& cosines, int height) {
  std::vector<BlockPanel> panels;
  int x = kMargin - kPanelGap, tallest = 0;
  for (const Block& block : blocks) {
    x += kPanelGap + kRowNumberWidth;
    panels.push_back({&block, x, kTitle + kPanelTitle, CellSide(block, height)});
    x += panels.back().width();
    tallest = std::max(tallest, panels.back().height() + kSeparatorLine);
  }
  const int scale_y = kTitle + kPanelTitle + tallest + 28;
  Canvas canvas(std::max(x + kMargin, kMinWidth), scale_y + kScaleBar, kPaperColour);
  canvas.Write(kMargin, 34, title, {22, true}, kTextColour);
  canvas.Write(kMargin, 66, note, {16}, kNoteColour);
  const HeatScale scale = ScaleFor(cosines);
  for (const BlockPanel& panel : panels) DrawPanel(canvas, panel, cosines, scale);
  const BlockPanel& last = panels.back();
  const int side = std::min(last.cell, 24);
  const int y = last.y + last.height() + 10;
  canvas.Fill({last.x, y, side, side}, scale.Of(cosines.back()));
  canvas.Write(last.x + side + 10, y + side / 2,
               absl::StrCat("view separator: row ", cosines.size() - 1), {15}, kTextColour);
  DrawScale(canvas, scale, scale_y);
  return canvas;
}

}  // namespace deepencoder::client
