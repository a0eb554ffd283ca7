#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "data_prep/import/import_format.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kHeaderBytes = 256 * 4;
constexpr std::uint64_t kTokensAtATime = std::uint64_t{1} << 20;  // tokens per read
constexpr std::uint64_t kAnyToken = std::uint64_t{1} << 32;

class LlmCTokens : public ForeignTokens {
 public:
  LlmCTokens(const std::filesystem::path& path, std::int64_t eot_id, EotPosition place)
      : ForeignTokens(path, open_read(path)) {
    const std::uint64_t size = std::filesystem::file_size(path);
    std::array<std::int32_t, 3> header{};
    if (size >= kHeaderBytes)
      read_all(file_.get(), std::as_writable_bytes(std::span(header)), 0, path);
    const auto [magic, version, tokens] = header;
    const bool gpt2 = magic == 20240520 && version == 1;
    const bool llama3 = magic == 20240801 && version == 7;
    if (!gpt2 && !llama3) {
      fail(ErrorKind::data,
           "{}: magic {} version {}, must be 20240520 version 1 (u16) or 20240801 version 7 (u32)",
           path.string(), magic, version);
    }
    const std::uint64_t width = gpt2 ? 2 : 4;
    // The header stores the count as int32; the size of the file must agree.
    if (tokens < 0 || size != kHeaderBytes + static_cast<std::uint64_t>(tokens) * width) {
      fail(ErrorKind::data, "{}: {} bytes, but the header has {} tokens of {} bytes, which need {}",
           path.string(), size, tokens, width,
           kHeaderBytes + static_cast<std::uint64_t>(std::max(tokens, 0)) * width);
    }
    set_layout(gpt2 ? Type::u16 : Type::u32, kHeaderBytes, static_cast<std::uint64_t>(tokens));
    eot_id_ = eot_id != kEotOfFormat ? eot_id : gpt2 ? 50256 : 128000;
    at_end_ = place == EotPosition::end;
    if (place == EotPosition::detect && tokens > 0) {
      std::array<std::uint32_t, 1> first{};
      read(0, first, kAnyToken);
      at_end_ = first[0] != eot_id_;
    }
  }

  [[nodiscard]] std::vector<std::uint64_t> documents(std::uint64_t begin, std::uint64_t end,
                                                     bool only_first) const override {
    std::vector<std::uint64_t> starts;
    if (num_tokens() == 0 || begin >= end) return starts;
    if (begin == 0) starts.push_back(0);
    if (eot_id_ < 0 || (only_first && !starts.empty())) return starts;
    // A document starts at its own token, or after the token of the previous document.
    const std::uint64_t shift = at_end_ ? 1 : 0;
    const std::uint64_t last = std::min(end, num_tokens()) - shift;
    std::vector<std::uint32_t> ids;
    for (std::uint64_t at = std::max<std::uint64_t>(begin, 1) - shift; at < last;
         at += kTokensAtATime) {
      ids.resize(std::min(kTokensAtATime, last - at));
      read(at, ids, kAnyToken);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != eot_id_) continue;
        starts.push_back(at + i + shift);
        if (only_first) return starts;
      }
    }
    return starts;
  }

 private:
  std::int64_t eot_id_ = -1;
  bool at_end_ = false;
};

}  // namespace

EotPosition eot_position_named(std::string_view name) {
  if (name == "start") return EotPosition::start;
  if (name == "end") return EotPosition::end;
  TRIREME_ASSERT(name == "auto");
  return EotPosition::detect;
}

std::unique_ptr<ForeignTokens> open_llm_c(const std::filesystem::path& path, std::int64_t eot_id,
                                          EotPosition place) {
  return std::make_unique<LlmCTokens>(path, eot_id, place);
}

}  // namespace trireme::data_prep
