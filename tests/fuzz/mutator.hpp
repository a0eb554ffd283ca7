#pragma once
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// Random damage, which is the same for the same seed on every machine, and the main loop of a fuzz
/// test.
namespace trireme::testing {

/// Makes inputs that are nearly valid: a seed text with some edits, including words of a
/// dictionary.
class Mutator {
 public:
  Mutator(std::uint64_t seed, std::vector<std::string> dictionary)
      : random_(seed), dictionary_(std::move(dictionary)) {}

  /// Returns a number in [0, bound); bound > 0. (Distributions of the standard library differ
  /// between machines.)
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  bool one_in(std::size_t n) { return below(n) == 0; }

  /// Replaces bytes only; the length stays. `text` must not be empty.
  void damage(std::string& text, std::size_t begin, std::size_t end) {
    char& byte = text[begin + below(end - begin)];
    switch (below(4)) {
      case 0:
        byte = static_cast<char>(byte ^ (1 << below(8)));
        break;
      case 1:
        byte = static_cast<char>(below(256));
        break;
      case 2:
        byte = '\xff';
        break;
      default:
        byte = '\0';
    }
  }

  /// Makes one or two edits of any kind, sometimes more.
  void mutate(std::string& text) {
    for (std::size_t edits = 1 + below(one_in(4) ? 6 : 2); edits > 0; --edits) edit(text);
  }

 private:
  void edit(std::string& text) {
    if (text.empty()) text.push_back('x');
    const std::size_t at = below(text.size());
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 40)) + 1;
    switch (below(8)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 2:
        text.insert(at, dictionary_[below(dictionary_.size())]);
        break;
      case 3: {
        const std::string& word = dictionary_[below(dictionary_.size())];
        text.replace(at, std::min(word.size(), text.size() - at), word);
        break;
      }
      case 4:
        if (one_in(4)) text.resize(at);
        break;
      case 5:
        text.insert(at, std::string(below(one_in(50) ? 3000 : 20) + 1, text[at]));
        break;
      default:
        damage(text, at, text.size());
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> dictionary_;
};

/// Returns TRIREME_FUZZ_CASES; `usual` if it is not set.
inline std::size_t fuzz_cases(std::size_t usual) {
  const char* asked = std::getenv("TRIREME_FUZZ_CASES");
  return asked == nullptr ? usual : static_cast<std::size_t>(std::atoll(asked));
}

/// Returns the name for a TestDirectory, in memory if the system has a directory in memory.
inline std::string memory_directory(const std::string& name) {
  return std::filesystem::exists("/dev/shm") ? "../dev/shm/" + name : name;
}

/// Returns the peak memory of this process, in MB.
inline long peak_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

/// Calls run(case) for each case. Returns how much the peak memory grew after the first tenth of
/// the cases, in MB: memory that a parser does not free, or that a malicious input makes it
/// allocate.
template <class Run>
long fuzz(const char* name, std::size_t cases, Run&& run) {
  long early_mb = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    if (i == cases / 10) early_mb = peak_mb();
    run(i);
  }
  std::printf("%s: %zu cases, peak %ld MB, %ld MB of it after the first tenth\n", name, cases,
              peak_mb(), peak_mb() - early_mb);
  return peak_mb() - early_mb;
}

}  // namespace trireme::testing
