#pragma once
#include <cstdint>
#include <span>

namespace trireme {

/// Which tokens may follow, for answers of a given form (a JSON schema). One object serves one
/// request; all calls come from the engine's thread, in the order of the text.
class TokenMask {
 public:
  virtual ~TokenMask() = default;

  /// Of the next token: sets bit id % 64 of word id / 64 for each id that is allowed, among
  /// `vocab_size` ids; all bits are 0 before. End tokens are ids as others: where the text may end,
  /// they must be allowed. At least one id must be. False: all are allowed, and the bits are not
  /// read.
  virtual bool allow(std::span<std::uint64_t> bits, std::int64_t vocab_size) = 0;

  /// `id` was drawn; once for each token, an end token too.
  virtual void accept(std::uint32_t id) = 0;
};

}  // namespace trireme
