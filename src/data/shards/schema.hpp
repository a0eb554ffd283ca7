#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// Names of shard format version 1. docs/formats/token-set.md specifies their meaning and allowed
/// changes.
namespace trireme::data::schema {

inline constexpr std::string_view kFormat = "trireme-tokens";
inline constexpr std::uint64_t kVersion = 1;
inline constexpr std::string_view kManifest = "manifest.json";
inline constexpr std::string_view kTokenizerDirectory = "tokenizer";
inline constexpr std::string_view kTemporaryPrefix = ".tmp.";

inline constexpr const char* kTokens = "/tokens";                      // u16 or u32 [T], contiguous
inline constexpr const char* kDocOffset = "/doc/offset";               // u64 [D+1]
inline constexpr const char* kDocSource = "/doc/source";               // u32 [D]
inline constexpr const char* kDocSourceOffset = "/doc/source_offset";  // u64 [D]
inline constexpr const char* kDocTextHash = "/doc/text_xxh3";          // u64 [D]
inline constexpr const char* kDocLine = "/doc/line";                   // u32 [D], may be absent
inline constexpr const char* kIntegrity = "/integrity/xxh3";  // u64 [ceil(T / kChunkTokens)]
inline constexpr const char* kSources = "/sources";           // u8: JSON
inline constexpr const char* kBad = "/bad";                   // u8: JSON
inline constexpr const char* kMeta = "/meta";                 // u8: JSON

// Shards of conversations have these datasets. SetContent lists the datasets of each kind.
inline constexpr const char* kLossPtr = "/loss/span_ptr";  // u64 [D+1]
inline constexpr const char* kLossSpan = "/loss/span";     // u32 [S, 2]
// Shards of preference pairs have these datasets; a document is a pair.
inline constexpr const char* kPairPrompt = "/pair/prompt_len";          // u32 [D]
inline constexpr const char* kPairChosen = "/pair/chosen_len";          // u32 [D]
inline constexpr const char* kPairRejected = "/pair/rejected_len";      // u32 [D]
inline constexpr const char* kChosenPtr = "/pair/chosen_span_ptr";      // u64 [D+1]
inline constexpr const char* kChosenSpan = "/pair/chosen_span";         // u32 [S, 2]
inline constexpr const char* kRejectedPtr = "/pair/rejected_span_ptr";  // u64 [D+1]
inline constexpr const char* kRejectedSpan = "/pair/rejected_span";     // u32 [S, 2]

// Shards of prompts have these datasets; a document is a prompt.
inline constexpr const char* kRecordPtr = "/record/ptr";      // u64 [D+1]
inline constexpr const char* kRecordBytes = "/record/bytes";  // u8: JSON objects, concatenated

inline constexpr std::uint64_t kChunkTokens = std::uint64_t{1} << 20;

/// Returns "/pack/L512".
inline std::string pack_group(std::int64_t seq_len) {
  return "/pack/L" + std::to_string(seq_len);
}

/// Returns "shard-00007.h5".
inline std::string shard_name(std::uint64_t index) {
  std::string digits = std::to_string(index);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "shard-" + digits + ".h5";
}

}  // namespace trireme::data::schema
