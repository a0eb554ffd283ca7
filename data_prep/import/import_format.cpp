#include "data_prep/import/import_format.hpp"

#include <cstring>

#include "core/error.hpp"

namespace trireme::data_prep {
namespace {

template <class T>
std::int64_t value_at(const std::byte* bytes, std::size_t index) {
  T value{};
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return static_cast<std::int64_t>(value);
}

}  // namespace

void ForeignTokens::set_layout(Type type, std::uint64_t data_begin, std::uint64_t num_tokens) {
  type_ = type;
  data_begin_ = data_begin;
  num_tokens_ = num_tokens;
  width_ = type == Type::i64                        ? 8
           : type == Type::i32 || type == Type::u32 ? 4
           : type == Type::i16 || type == Type::u16 ? 2
                                                    : 1;
}

void ForeignTokens::read(std::uint64_t begin, std::span<std::uint32_t> ids,
                         std::uint64_t vocab_size) const {
  std::vector<std::byte> bytes(ids.size() * width_);
  read_all(file_.get(), bytes, byte_of(begin), path_);
  const auto widen = [&](auto zero) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = value_at<decltype(zero)>(bytes.data(), i);
      if (id < 0 || static_cast<std::uint64_t>(id) >= vocab_size) {
        fail(
            ErrorKind::data,
            "{}:{}: token {}, must be in [0, {}): the file was made with another tokenizer, or is damaged",
            path_.string(), byte_of(begin + i), id, vocab_size);
      }
      ids[i] = static_cast<std::uint32_t>(id);
    }
  };
  switch (type_) {
    case Type::u8:
      return widen(std::uint8_t{});
    case Type::i8:
      return widen(std::int8_t{});
    case Type::i16:
      return widen(std::int16_t{});
    case Type::u16:
      return widen(std::uint16_t{});
    case Type::i32:
      return widen(std::int32_t{});
    case Type::u32:
      return widen(std::uint32_t{});
    case Type::i64:
      return widen(std::int64_t{});
  }
}

}  // namespace trireme::data_prep
