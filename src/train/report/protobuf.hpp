#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace trireme::train {

/// A protocol buffer message in its wire format, for file formats that consist of a few messages.
/// Fields are appended in the order of the calls. Source: protobuf.dev, "Encoding".
class Protobuf {
 public:
  Protobuf& number(std::uint32_t field, std::uint64_t value) {
    key(field, kVarint);
    varint(value);
    return *this;
  }

  Protobuf& real(std::uint32_t field, double value) {
    key(field, kFixed64);
    append(std::bit_cast<std::uint64_t>(value));
    return *this;
  }

  Protobuf& real32(std::uint32_t field, float value) {
    key(field, kFixed32);
    append(std::bit_cast<std::uint32_t>(value));
    return *this;
  }

  /// Adds a string, bytes, or a packed list.
  Protobuf& text(std::uint32_t field, std::string_view value) {
    key(field, kBytes);
    varint(value.size());
    bytes_ += value;
    return *this;
  }

  Protobuf& message(std::uint32_t field, const Protobuf& value) {
    return text(field, value.bytes_);
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  static constexpr std::uint32_t kVarint = 0;
  static constexpr std::uint32_t kFixed64 = 1;
  static constexpr std::uint32_t kBytes = 2;
  static constexpr std::uint32_t kFixed32 = 5;

  void key(std::uint32_t field, std::uint32_t type) { varint(field << 3 | type); }

  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  template <class Bits>
  void append(Bits bits) {  // little-endian, like all supported processors
    char buffer[sizeof bits];
    std::memcpy(buffer, &bits, sizeof bits);
    bytes_.append(buffer, sizeof bits);
  }

  std::string bytes_;
};

}  // namespace trireme::train
