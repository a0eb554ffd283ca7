#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.hpp"

namespace trireme {

/// A file of tokens that another program wrote, as one run of tokens with document borders.
/// Everything is read when asked for: memory does not grow with the file. Functions throw
/// Error(data) naming file and place.
class ForeignTokens {
 public:
  virtual ~ForeignTokens() = default;
  ForeignTokens(const ForeignTokens&) = delete;
  ForeignTokens& operator=(const ForeignTokens&) = delete;
  ForeignTokens(ForeignTokens&&) = delete;
  ForeignTokens& operator=(ForeignTokens&&) = delete;

  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return num_tokens_; }

  /// Byte of the file where a token lies.
  [[nodiscard]] std::uint64_t byte_of(std::uint64_t token) const noexcept {
    return data_begin_ + token * width_;
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Tokens [begin, begin + ids.size()), each checked to be in [0, vocab_size).
  void read(std::uint64_t begin, std::span<std::uint32_t> ids, std::uint64_t vocab_size) const;

  /// First token of each document that starts in [begin, end), ascending; token 0 is one.
  /// `only_first`: no more than the first of them.
  [[nodiscard]] virtual std::vector<std::uint64_t> documents(std::uint64_t begin, std::uint64_t end,
                                                             bool only_first) const = 0;

 protected:
  enum class Type { u8, i8, i16, u16, i32, u32, i64 };

  ForeignTokens(std::filesystem::path path, Fd file)
      : path_(std::move(path)), file_(std::move(file)) {}

  void set_layout(Type type, std::uint64_t data_begin, std::uint64_t num_tokens);

  std::filesystem::path path_;
  Fd file_;

 private:
  Type type_ = Type::u16;
  std::uint64_t width_ = 2;
  std::uint64_t data_begin_ = 0;
  std::uint64_t num_tokens_ = 0;
};

/// Megatron-LM's indexed dataset: `path` is the .bin file, the .idx file lies beside it. Token
/// types u8, i8, i16, i32, i64 and u16; float types and files with modes (multimodal) are refused.
/// A document is the run of sequences that the index groups. Source: Megatron-LM,
/// megatron/core/datasets/indexed_dataset.py (format facts).
std::unique_ptr<ForeignTokens> open_megatron(const std::filesystem::path& path);

/// Where llm.c's end-of-text token stands in a document: `start` is what its data scripts write.
/// `detect`: start if the file begins with it, else end.
enum class EotPlace { detect, start, end };

/// For "auto", "start" and "end".
EotPlace eot_place_named(std::string_view name);

/// In place of an end-of-text token: 50256 or 128000, what llm.c's scripts write with the magic.
inline constexpr std::int64_t kEotOfFormat = -2;

/// llm.c and modded-nanogpt: 256 int32 of header (magic, version, tokens), then u16 (magic
/// 20240520, version 1) or u32 (magic 20240801, version 7). Documents are cut at `eot_id`, which
/// may be kEotOfFormat; another negative one cuts nowhere.
/// Source: llm.c, dev/data/data_common.py (format facts).
std::unique_ptr<ForeignTokens> open_llm_c(const std::filesystem::path& path, std::int64_t eot_id,
                                          EotPlace place);

}  // namespace trireme
