#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/learn/bpe_trainer.hpp"
#include "text/tokenizer.hpp"

/// Texts and small tokenizers for the tests of src/text.
namespace trireme::text::samples {

/// Returns 32 random bits per call.
class Rng {
 public:
  explicit Rng(std::uint32_t seed) : engine_(seed) {}

  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

inline void append_utf8(std::uint32_t c, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

/// Returns a random mixture of scripts, white space, contractions, emoji and arbitrary code points.
inline std::string random_text(Rng& rng, int max_parts) {
  static const std::vector<std::string> parts = {
      " ",     "  ",    "\n",         "\t",   "\r\n",    "\xC2\xA0", "\xE3\x80\x80",
      "the",   " the",  "don't",      "'s",   "''ll",    "'",        "abcabc",
      "42",    " 3.14", "!?",         "世界", "你好，",  "мир",      "👍🏽",
      "é",     "<",     "<|im_end|>", "<|i",  "<think>", "ab ",      "return",
      "\u200B"};
  std::string text;
  const int count = static_cast<int>(rng() % static_cast<unsigned>(max_parts + 1));
  for (int i = 0; i < count; ++i) {
    if (rng() % 3 != 0) {
      text += parts[rng() % parts.size()];
      continue;
    }
    std::uint32_t c = rng() % (rng() % 2 == 0 ? 0x3000 : 0x110000);
    if (c >= 0xD800 && c <= 0xDFFF) c = 0x4E00;
    append_utf8(c, text);
  }
  return text;
}

/// Returns a tokenizer with MiniMind-3's layout and a few hundred merges, trained on mixed text.
inline const std::map<std::string, std::string>& small_files() {
  static const std::map<std::string, std::string> files = [] {
    WordCounter counter;
    Rng rng(7);
    for (int i = 0; i < 300; ++i) counter.add(random_text(rng, 30));
    for (int i = 0; i < 50; ++i)
      counter.add("the other return of the world, 你好，世界。 don't 3.14 мир " +
                  std::to_string(i));
    return train_bpe(counter, {.vocab_size = 700});
  }();
  return files;
}

inline Tokenizer small_tokenizer() {
  return Tokenizer::from_files(small_files(), "test");
}

}  // namespace trireme::text::samples
