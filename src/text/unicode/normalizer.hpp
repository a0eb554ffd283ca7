#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode/charsmap.hpp"

namespace trireme::text {

/// One step of the normalizer of tokenizer.json.
struct NormalizerStep {
  enum class Kind : std::uint8_t {
    nfc,
    prepend,         // puts `to` before a text that is not empty
    replace,         // replaces each `from` by `to`
    replace_blanks,  // replaces each run of two or more U+0020 by `to`
    strip,           // removes white space at the ends that `left` and `right` name
    nfkc,
    precompiled,  // applies `charsmap`
    nfd,
    nfkd,
    lowercase,
    strip_accents,
  };

  Kind kind = Kind::nfc;
  std::string from = {};
  std::string to = {};
  bool left = false;
  bool right = false;
  std::shared_ptr<const Charsmap> charsmap = {};  // shared, because copies of a step are common
};

/// Normalizes text between added tokens. Immutable and thread-safe.
class Normalizer {
 public:
  Normalizer() = default;

  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  /// Returns the normalizer that only applies NFC if `nfc` is true.
  static Normalizer nfc_if(bool nfc);

  [[nodiscard]] const std::vector<NormalizerStep>& steps() const noexcept { return steps_; }

  /// Returns true if no text changes.
  [[nodiscard]] bool is_identity() const noexcept { return steps_.empty(); }

  /// Returns the normalizer that only applies NFKC.
  static Normalizer nfkc();

  /// Returns true if NFKC is the only step.
  [[nodiscard]] bool is_nfkc() const noexcept;

  /// Returns true if NFC is the only step.
  [[nodiscard]] bool is_nfc() const noexcept;

  /// Returns true if `text` surely stays as it is. The check is fast.
  [[nodiscard]] bool surely_keeps(std::string_view text) const noexcept;

  /// Returns the normalized `text` (valid UTF-8).
  [[nodiscard]] std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

/// Returns `text` with each `from` (not empty) replaced by `to`.
std::string with_replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace trireme::text
