#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "data_prep/import/import_format.hpp"

/// The .idx file: "MMIDIDX\0\0", u64 version, u8 type, u64 sequences S, u64 documents + 1, then
/// i32 lengths [S], i64 byte offsets in the .bin [S], i64 first sequence of each document and S at
/// the end. Multimodal files add i8 modes [S].
namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kIndexHeaderBytes = 34;
constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::uint64_t kEntriesAtATime = std::uint64_t{1} << 16;  // entries per read

class MegatronTokens : public ForeignTokens {
 public:
  MegatronTokens(const std::filesystem::path& path, std::filesystem::path index)
      : ForeignTokens(path, open_read(path)),
        index_path_(std::move(index)),
        index_(open_read(index_path_)) {
    const std::uint64_t bin_bytes = std::filesystem::file_size(path);
    const std::uint64_t width = read_header();
    if (bin_bytes % width != 0) {
      fail(ErrorKind::data, "{}: {} bytes are not a multiple of {} bytes, the token size in {}",
           path.string(), bin_bytes, width, index_path_.string());
    }
    width_ = width;
    set_layout(type_of(code_), 0, bin_bytes / width);
    check_lengths();
    check_documents();
  }

  [[nodiscard]] std::vector<std::uint64_t> documents(std::uint64_t begin, std::uint64_t end,
                                                     bool only_first) const override {
    std::uint64_t low = 0;
    std::uint64_t high = num_documents_;
    while (low < high) {  // find the first document at or after begin
      const std::uint64_t middle = low + (high - low) / 2;
      if (document_begin(middle) < begin) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    std::vector<std::uint64_t> starts;
    for (std::uint64_t first = low; first < num_documents_; first += kEntriesAtATime) {
      const std::uint64_t count = only_first ? std::min<std::uint64_t>(64, num_documents_ - first)
                                             : std::min(kEntriesAtATime, num_documents_ - first);
      const auto sequences = table<std::int64_t>(documents_at_, first, count);
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const std::uint64_t start = token_of_sequence(sequences[i]);
        if (start >= end) return starts;
        if (starts.empty() || start != starts.back())
          starts.push_back(start);  // skip empty documents
        if (only_first) return starts;
      }
    }
    return starts;
  }

 private:
  [[noreturn]] void damaged(const char* table, std::uint64_t entry) const {
    fail(ErrorKind::data,
         "{}: entry {} of the {} is out of order: the index is damaged or does not belong to {}",
         index_path_.string(), entry, table, path_.string());
  }

  template <class T>
  [[nodiscard]] std::vector<T> table(std::uint64_t at, std::uint64_t first,
                                     std::uint64_t count) const {
    std::vector<T> values(count);
    read_all(index_.get(), std::as_writable_bytes(std::span(values)), at + first * sizeof(T),
             index_path_);
    return values;
  }

  /// Reads the header and returns the size of a token in bytes.
  std::uint64_t read_header() {
    const std::uint64_t size = std::filesystem::file_size(index_path_);
    std::array<char, kIndexHeaderBytes> header{};
    if (size >= kIndexHeaderBytes)
      read_all(index_.get(), std::as_writable_bytes(std::span(header)), 0, index_path_);
    if (!std::equal(kMagic.begin(), kMagic.end(), header.begin()))
      fail(ErrorKind::data, "{} is not a Megatron index (no MMIDIDX)", index_path_.string());
    std::uint64_t version = 0;
    std::uint64_t entries = 0;
    std::memcpy(&version, &header[9], 8);
    code_ = static_cast<std::uint8_t>(header[17]);
    std::memcpy(&num_sequences_, &header[18], 8);
    std::memcpy(&entries, &header[26], 8);
    if (version != 1)
      fail(ErrorKind::data, "{}: version {}, must be 1", index_path_.string(), version);
    static_cast<void>(type_of(code_));
    // Check the bounds first, so that the sums below cannot overflow.
    const bool possible = num_sequences_ <= size && entries >= 1 && entries <= size;
    const std::uint64_t expected =
        possible ? kIndexHeaderBytes + 12 * num_sequences_ + 8 * entries : std::uint64_t{0};
    if (possible && num_sequences_ > 0 && size == expected + num_sequences_) {
      fail(ErrorKind::data, "{} has modes, so it is a multimodal set; only text is supported",
           index_path_.string());
    }
    if (size != expected) {
      fail(ErrorKind::data, "{}: {} bytes, but {} sequences and {} document boundaries need {}",
           index_path_.string(), size, num_sequences_, entries, expected);
    }
    num_documents_ = entries - 1;
    documents_at_ = kIndexHeaderBytes + 12 * num_sequences_;
    const auto first = table<std::int64_t>(documents_at_, 0, 1)[0];
    const auto last = table<std::int64_t>(documents_at_, num_documents_, 1)[0];
    if (first != 0 || last != static_cast<std::int64_t>(num_sequences_)) {
      fail(ErrorKind::data, "{}: documents go from sequence {} to {}, must be 0 to {}",
           index_path_.string(), first, last, num_sequences_);
    }
    constexpr std::array<std::uint64_t, 9> kBytes{0, 1, 1, 2, 4, 8, 0, 0, 2};
    return kBytes[code_];
  }

  [[nodiscard]] Type type_of(std::uint8_t code) const {
    constexpr std::array<std::pair<int, Type>, 6> kTypes{{{1, Type::u8},
                                                          {2, Type::i8},
                                                          {3, Type::i16},
                                                          {4, Type::i32},
                                                          {5, Type::i64},
                                                          {8, Type::u16}}};
    for (const auto& [known, type] : kTypes) {
      if (known == code) return type;
    }
    fail(ErrorKind::data, "{}: token type {}, must be 1, 2, 3, 4, 5 or 8 (integers)",
         index_path_.string(), int{code});
  }

  /// Throws unless the sequences lie one after another in the .bin file and fill it.
  void check_lengths() const {
    std::uint64_t at = 0;  // bytes
    for (std::uint64_t first = 0; first < num_sequences_; first += kEntriesAtATime) {
      const std::uint64_t count = std::min(kEntriesAtATime, num_sequences_ - first);
      const auto lengths = table<std::int32_t>(kIndexHeaderBytes, first, count);
      const auto offsets =
          table<std::int64_t>(kIndexHeaderBytes + 4 * num_sequences_, first, count);
      for (std::size_t i = 0; i < count; ++i) {
        if (lengths[i] < 0 || offsets[i] < 0 || static_cast<std::uint64_t>(offsets[i]) != at)
          damaged("sequences", first + i);
        at += static_cast<std::uint64_t>(lengths[i]) * width_;
      }
    }
    if (at != byte_of(num_tokens())) {
      fail(ErrorKind::data, "{}: {} bytes, but the sequences of {} need {}", path_.string(),
           byte_of(num_tokens()), index_path_.string(), at);
    }
  }

  /// Throws unless the documents are ascending, which the binary search requires.
  void check_documents() const {
    std::int64_t last = 0;
    for (std::uint64_t first = 0; first <= num_documents_; first += kEntriesAtATime) {
      const std::uint64_t count = std::min(kEntriesAtATime, num_documents_ + 1 - first);
      const auto sequences = table<std::int64_t>(documents_at_, first, count);
      for (std::size_t i = 0; i < count; ++i) {
        if (sequences[i] < last) damaged("documents", first + i);
        last = sequences[i];
      }
    }
  }

  [[nodiscard]] std::uint64_t token_of_sequence(std::int64_t sequence) const {
    const auto number = static_cast<std::uint64_t>(sequence);
    if (number == num_sequences_) return num_tokens();
    const auto offset = table<std::int64_t>(kIndexHeaderBytes + 4 * num_sequences_, number, 1)[0];
    return static_cast<std::uint64_t>(offset) / width_;
  }

  [[nodiscard]] std::uint64_t document_begin(std::uint64_t document) const {
    return token_of_sequence(table<std::int64_t>(documents_at_, document, 1)[0]);
  }

  std::filesystem::path index_path_;
  Fd index_;
  std::uint8_t code_ = 0;
  std::uint64_t width_ = 1;
  std::uint64_t num_sequences_ = 0;
  std::uint64_t num_documents_ = 0;
  std::uint64_t documents_at_ = 0;
};

}  // namespace

std::filesystem::path index_of_megatron(const InputFile& tokens) {
  const auto beside_link = std::filesystem::path(tokens.given).replace_extension(".idx");
  const auto beside_file = std::filesystem::path(tokens.path).replace_extension(".idx");
  std::error_code ignored;
  const bool has_own = std::filesystem::exists(beside_link, ignored);
  return !has_own && std::filesystem::exists(beside_file, ignored) ? beside_file : beside_link;
}

std::unique_ptr<ForeignTokens> open_megatron(const InputFile& tokens) {
  return std::make_unique<MegatronTokens>(tokens.given, index_of_megatron(tokens));
}

}  // namespace trireme::data_prep
