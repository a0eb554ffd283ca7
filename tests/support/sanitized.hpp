#pragma once

namespace trireme {

/// Under a sanitizer the same code runs on fewer cases, each of which takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trireme
