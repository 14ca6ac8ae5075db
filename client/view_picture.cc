#include "client/view_picture.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "encoder/model/config.h"

namespace deepencoder::client {
namespace {

// Pixels.
constexpr int kMargin = 36, kPanelGap = 44, kTitle = 92, kPanelTitle = 40;
constexpr int kSeparatorLine = 40, kStrip = 128, kLegend = 36;
constexpr int kMinWidth = 900;  // of the whole, for its texts

struct PagePanel {
  int x, y, width, height;
};

PagePanel PlacePage(const RgbImage& image, int height) {
  const double scale = std::min(static_cast<double>(height) / image.height(),
                                static_cast<double>(height) * 1.25 / image.width());
  return {kMargin, kTitle + kPanelTitle,
          std::max(1, static_cast<int>(std::lround(image.width() * scale))),
          std::max(1, static_cast<int>(std::lround(image.height() * scale)))};
}

std::string Pixels(int width, int height) { return absl::StrCat(width, " x ", height, " pixels"); }

// A text on a dark ground, its middle at (x, y).
void WriteLabel(Canvas& canvas, int x, int y, const std::string& text, Colour ground) {
  const Font font{18, true};
  const int width = TextWidth(text, font);
  canvas.Fill({x - width / 2 - 9, y - 16, width + 18, 32}, ground, 0.88);
  canvas.WriteCentred(x, y, text, font, kPaperColour);
}

void DrawPage(Canvas& canvas, const RgbImage& image, TileGrid tiles, const PagePanel& page) {
  canvas.Write(page.x, page.y - 20, "page", {18, true}, kTextColour);
  canvas.Write(page.x + 60, page.y - 20, Pixels(image.width(), image.height()), {15}, kNoteColour);
  canvas.Paste(page.x, page.y, Scaled(image.mat(), page.width, page.height));
  canvas.Frame({page.x - 1, page.y - 1, page.width + 2, page.height + 2}, kNoteColour);
  if (tiles.count() == 0) return;
  for (int i = 0; i < tiles.count(); ++i) {
    const int column = i % tiles.columns, row = i / tiles.columns;
    const int left = page.x + page.width * column / tiles.columns;
    const int right = page.x + page.width * (column + 1) / tiles.columns;
    const int top = page.y + page.height * row / tiles.rows;
    const int bottom = page.y + page.height * (row + 1) / tiles.rows;
    canvas.Frame({left, top, right - left, bottom - top}, kLocalColour, 2);
    WriteLabel(canvas, (left + right) / 2, (top + bottom) / 2, std::to_string(i + 1), kLocalColour);
  }
}

void DrawBlock(Canvas& canvas, const BlockPanel& panel) {
  const Block& block = *panel.block;
  const Box tokens = panel.Tokens();
  const bool tiled = block.tiles.count() > 0;
  const int side = block.picture.cols / block.tiles.columns;
  const std::string what =
      tiled ? absl::StrCat(block.tiles.columns, " x ", block.tiles.rows, " tiles of ", side)
            : absl::StrCat("view of ", side);
  canvas.Write(panel.x, panel.y - 20, block.name, {18, true}, block.colour);
  canvas.Write(
      panel.x + TextWidth(block.name, {18, true}) + 12, panel.y - 20,
      absl::StrCat(what, ": rows ", block.first_row, " to ", block.first_row + block.rows() - 1),
      {15}, kNoteColour);
  canvas.Paste(tokens.x, tokens.y, Scaled(block.picture, tokens.width, tokens.height));
  constexpr double kFaint = 0.35;
  for (int column = 1; column < block.columns; ++column) {
    canvas.Fill({panel.Cell(0, column).x, tokens.y, 1, tokens.height}, block.colour, kFaint);
  }
  for (int line = 1; line < block.lines; ++line) {
    canvas.Fill({tokens.x, panel.Cell(line, 0).y, tokens.width, 1}, block.colour, kFaint);
  }
  for (int line = 0; line < block.lines; ++line) {
    const Box newline = panel.Newline(line);
    canvas.Fill({newline.x, newline.y, newline.width, newline.height - 1}, kNewlineColour);
  }
  WriteRowNumbers(canvas, panel);
  const int width = tokens.width / block.tiles.columns, height = tokens.height / block.tiles.rows;
  for (int i = 0; i < block.tiles.columns * block.tiles.rows; ++i) {
    const Box tile{tokens.x + i % block.tiles.columns * width,
                   tokens.y + i / block.tiles.columns * height, width, height};
    canvas.Frame(tile, block.colour, 2);
    if (tiled) {
      WriteLabel(canvas, tile.x + width / 2, tile.y + height / 2, std::to_string(i + 1),
                 block.colour);
    }
  }
}

// The sequence from left to right, a stripe a row.
void DrawStrip(Canvas& canvas, const std::vector<Block>& blocks, int rows, int y) {
  constexpr int kHeight = 34;
  const int width = canvas.width() - 2 * kMargin;
  const auto at = [&](int row) { return kMargin + static_cast<int>(int64_t{width} * row / rows); };
  canvas.Write(kMargin, y + 10, "the sequence", {18, true}, kTextColour);
  canvas.Write(kMargin + TextWidth("the sequence", {18, true}) + 14, y + 10,
               "what the language model gets, in order", {15}, kNoteColour);
  y += 32;
  for (const Block& block : blocks) {
    const int end = block.first_row + block.rows();
    canvas.Fill({at(block.first_row), y, at(end) - at(block.first_row), kHeight}, block.colour);
    for (int line = 0; line < block.lines; ++line) {
      const int newline = at(block.RowOf(line, block.columns));
      canvas.Fill({newline, y, std::max(1, width / rows), kHeight}, kNewlineColour);
    }
    canvas.Write(at(block.first_row), y + kHeight + 16, std::to_string(block.first_row), {15},
                 kTextColour);
  }
  const int separator = std::max(3, width / rows);
  canvas.Fill({kMargin + width - separator, y - 6, separator, kHeight + 12}, kSeparatorColour);
  canvas.WriteRight(kMargin + width, y + kHeight + 16, std::to_string(rows - 1), {15}, kTextColour);
}

void DrawLegend(Canvas& canvas, const std::vector<Block>& blocks, int y) {
  int x = kMargin, newlines = 0, rows = 1;
  const auto entry = [&](Colour colour, const std::string& text) {
    canvas.Fill({x, y - 8, 16, 16}, colour);
    canvas.Write(x + 24, y, text, {15}, kTextColour);
    x += 24 + TextWidth(text, {15}) + 30;
  };
  for (const Block& block : blocks) {
    newlines += block.lines;
    rows += block.rows();
    entry(block.colour, absl::StrCat(block.name, ": ", block.columns, " x ", block.lines, " = ",
                                     block.columns * block.lines));
  }
  entry(kNewlineColour, absl::StrCat("newlines: ", newlines));
  entry(kSeparatorColour, "separator: 1");
  canvas.Write(x, y, absl::StrCat("= ", rows, " rows"), {15, true}, kTextColour);
}

}  // namespace

Canvas DrawViews(const std::string& name, const RgbImage& image, const ViewPlan& plan,
                 const std::vector<Block>& blocks, int height) {
  const PagePanel page = PlacePage(image, height);
  std::vector<BlockPanel> panels;
  int x = page.x + page.width, tallest = page.height;
  for (const Block& block : blocks) {
    x += kPanelGap + kRowNumberWidth;
    panels.push_back({&block, x, page.y, CellSide(block, height)});
    x += panels.back().width();
    tallest = std::max(tallest, panels.back().height() + kSeparatorLine);
  }
  const int strip = page.y + tallest + 28;
  Canvas canvas(std::max(x + kMargin, kMinWidth), strip + kStrip + kLegend + kMargin / 2,
                kPaperColour);

  const int rows = blocks.back().first_row + blocks.back().rows() + 1;
  canvas.Write(kMargin, 34, name, {24, true}, kTextColour);
  canvas.Write(kMargin, 66,
               absl::StrCat("mode ", std::string(SpecOf(plan.mode).name), ": ", rows, " rows of ",
                            kEmbeddingWidth, " take the place of the image in the prompt"),
               {16}, kNoteColour);
  DrawPage(canvas, image, plan.tiles, page);
  for (const BlockPanel& panel : panels) DrawBlock(canvas, panel);
  const BlockPanel& last = panels.back();
  const Box separator{last.x, last.y + last.height() + 10, std::min(last.cell, 24),
                      std::min(last.cell, 24)};
  canvas.Fill(separator, kSeparatorColour);
  canvas.Write(separator.right() + 10, separator.y + separator.height / 2,
               absl::StrCat("view separator: row ", rows - 1), {15}, kTextColour);
  DrawStrip(canvas, blocks, rows, strip);
  DrawLegend(canvas, blocks, strip + kStrip);
  return canvas;
}

}  // namespace deepencoder::client
