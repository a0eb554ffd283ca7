#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {

/// A token file of another program, as one sequence of tokens with document boundaries. Reads on
/// demand, so that memory does not grow with the file. Functions throw Error(data) naming file and
/// position.
class ForeignTokens {
 public:
  virtual ~ForeignTokens() = default;
  ForeignTokens(const ForeignTokens&) = delete;
  ForeignTokens& operator=(const ForeignTokens&) = delete;

  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return num_tokens_; }

  /// Returns the byte position of a token in the file.
  [[nodiscard]] std::uint64_t byte_of(std::uint64_t token) const noexcept {
    return data_begin_ + token * width_;
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Reads tokens [begin, begin + ids.size()). Each must be in [0, vocab_size).
  void read(std::uint64_t begin, std::span<std::uint32_t> ids, std::uint64_t vocab_size) const;

  /// Returns the first token of each document that starts in [begin, end), ascending. Token 0
  /// always starts a document. `only_first`: return at most the first one.
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

/// Returns the .idx file beside a .bin file of Megatron-LM. If the .bin file is a link, this is the
/// file beside the link or, if there is none, beside its target.
std::filesystem::path index_of_megatron(const InputFile& tokens);

/// Opens an indexed dataset of Megatron-LM: `tokens` is the .bin file. Supports token types u8, i8,
/// i16, i32, i64 and u16; refuses float types and files with modes (multimodal). A document is a
/// group of sequences in the index. Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py
/// (format facts).
std::unique_ptr<ForeignTokens> open_megatron(const InputFile& tokens);

/// Position of llm.c's end-of-text token in a document. `start` is the form that its data scripts
/// write. `detect`: start if the file begins with the token, else end.
enum class EotPosition { detect, start, end };

/// Parses "auto", "start" or "end".
EotPosition eot_position_named(std::string_view name);

/// Selects 50256 or 128000 by the magic number of the file, like the scripts of llm.c.
inline constexpr std::int64_t kEotOfFormat = -2;

/// Opens a file of llm.c or modded-nanogpt: a header of 256 int32 (magic, version, tokens), then
/// u16 (magic 20240520, version 1) or u32 (magic 20240801, version 7). Documents are cut at
/// `eot_id`, which may be kEotOfFormat; any other negative value means no cuts. Source: llm.c,
/// dev/data/data_common.py (format facts).
std::unique_ptr<ForeignTokens> open_llm_c(const std::filesystem::path& path, std::int64_t eot_id,
                                          EotPosition place);

}  // namespace trireme::data_prep
