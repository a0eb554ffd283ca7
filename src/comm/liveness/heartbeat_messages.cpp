#include "comm/liveness/heartbeat_messages.hpp"

#include <concepts>
#include <cstdint>

/// Format of a message: its size in 8 bytes, its letter, then its fields. Numbers have 8 bytes in
/// little-endian order; texts have their size before them.
namespace trireme::comm::heartbeat {
namespace {

constexpr std::size_t kNumber = 8;        // bytes of a number
constexpr std::uint64_t kMaxSize = 4096;  // bytes; ranks of this job send no longer messages

class Encoder {
 public:
  template <std::integral T>
  void operator()(T value) {
    const auto wide = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < kNumber; ++i) bytes_ += static_cast<char>(wide >> (8 * i) & 0xff);
  }

  void operator()(const std::string& text) {
    const std::string_view sent = std::string_view(text).substr(0, kMaxText);
    (*this)(sent.size());
    bytes_ += sent;
  }

  void letter(char c) { bytes_ += c; }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : left_(bytes) {}

  template <std::integral T>
  void operator()(T& value) {
    std::uint64_t wide = 0;
    const std::string_view bytes = take(kNumber);
    for (std::size_t i = bytes.size(); i-- > 0;)
      wide = wide << 8 | static_cast<unsigned char>(bytes[i]);
    value = static_cast<T>(wide);
    good_ = good_ && static_cast<std::uint64_t>(value) == wide;
  }

  void operator()(std::string& text) {
    std::uint64_t size = 0;
    (*this)(size);
    text = take(size);
  }

  /// Returns true if the message was complete, all values were in range, and no bytes are left.
  [[nodiscard]] bool finished() const { return good_ && left_.empty(); }

 private:
  std::string_view take(std::uint64_t size) {
    good_ = good_ && size <= left_.size();
    if (!good_) return {};
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  std::string_view left_;
  bool good_ = true;
};

/// Decodes `body` as a message of type M. Returns false if the body is not exactly one such
/// message.
template <class M>
bool decode_as(std::string_view body, std::optional<HeartbeatMessage>& found) {
  if (body.front() != M::kLetter) return false;
  M message;
  Decoder decoder(body.substr(1));
  M::fields(message, decoder);
  if (decoder.finished()) found = std::move(message);
  return found.has_value();
}

template <class... M>
std::optional<HeartbeatMessage> decode_any(std::string_view body, std::variant<M...>*) {
  std::optional<HeartbeatMessage> found;
  if (!body.empty()) (decode_as<M>(body, found) || ...);
  return found;
}

}  // namespace

std::string encode(const HeartbeatMessage& message) {
  Encoder body;
  std::visit(
      [&](const auto& one) {
        body.letter(one.kLetter);
        one.fields(one, body);
      },
      message);
  Encoder size;
  size(body.bytes().size());
  return size.bytes() + body.bytes();
}

Decoded decode(std::string_view bytes) {
  if (bytes.size() < kNumber) return {};
  std::uint64_t size = 0;
  Decoder(bytes.substr(0, kNumber))(size);
  if (size > kMaxSize) return {.garbage = true};
  if (bytes.size() - kNumber < size) return {};
  Decoded first;
  first.message = decode_any(bytes.substr(kNumber, size), static_cast<HeartbeatMessage*>(nullptr));
  first.used = kNumber + size;
  first.garbage = !first.message;
  return first;
}

}  // namespace trireme::comm::heartbeat
