#include "client/bench_page.h"

#include <algorithm>
#include <random>

#include "client/view_canvas.h"

namespace deepencoder::client {
namespace {

// A word of 2 to 10 letters.
std::string Word(std::minstd_rand& random) {
  std::string word(2 + random() % 9, ' ');
  for (char& letter : word) letter = static_cast<char>('a' + random() % 26);
  return word;
}

}  // namespace

absl::StatusOr<std::string> SyntheticPage(int width, int height) {
  constexpr Colour kPaper{252, 251, 247}, kInk{34, 34, 40};
  constexpr int kLines = 60, kLinesOfParagraph = 7;
  std::minstd_rand random(static_cast<unsigned>(width) * 31U + static_cast<unsigned>(height));
  Canvas page(width, height, kPaper);
  const int margin = std::min(width, height) / 12;
  const int pitch = std::max(8, (height - 2 * margin) / kLines);
  const Font font{0.8 * pitch, false};
  const int space = TextWidth("n", font);
  int line = 0;
  for (int y = margin; y < height - margin; y += pitch, ++line) {
    if (line % (kLinesOfParagraph + 1) == kLinesOfParagraph) continue;
    int x = margin;
    while (true) {
      const std::string word = Word(random);
      const int word_width = TextWidth(word, font);
      if (x + word_width > width - margin) break;
      page.Write(x, y, word, font, kInk);
      x += word_width + space;
    }
  }
  return EncodePng(page.pixels());
}

}  // namespace deepencoder::client
