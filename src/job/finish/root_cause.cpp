#include "job/finish/root_cause.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>

#include "core/error.hpp"

namespace trireme {
namespace {

bool tells_of_memory(const Verdict& verdict) {
  std::string text = verdict.message;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return verdict.exit_code == exit_code(ErrorKind::resource) &&
         text.find("out of memory") != std::string::npos;
}

RootCause own(const Verdict& one) {
  const bool is_oom = one.kind == "error" && tells_of_memory(one);
  return {one.rank, one.host, is_oom ? "oom" : one.kind, one.message};
}

RootCause missed(const Verdict& one) {
  return {one.lost.rank, one.lost.host, one.lost.kind, one.message};
}

struct CauseRow {
  std::function<bool(const Verdict&)> holds;
  std::function<RootCause(const Verdict&)> tell;
};

bool is_comm(const Verdict& one) {
  return one.exit_code == exit_code(ErrorKind::comm);
}

/// The first that holds for some verdict is the cause.
const std::array<CauseRow, 6>& rows() {
  static const std::array<CauseRow, 6> table{
      {{[](const Verdict& one) { return one.kind == "error" && !is_comm(one); }, own},
       {[](const Verdict& one) { return one.kind == "hang"; }, own},
       // A rank on the same node has seen the kernel kill for want of memory.
       {[](const Verdict& one) { return one.lost.kind == "oom"; }, missed},
       {[](const Verdict& one) { return one.lost.rank >= 0; }, missed},
       {[](const Verdict& one) { return one.kind == "error"; }, own},  // a wait in vain
       {[](const Verdict& one) { return one.exit_code != 0; }, own}}};
  return table;
}

}  // namespace

RootCause root_cause_of(const Leg& leg, int srun_code) {
  for (const CauseRow& row : rows()) {
    const auto found = std::find_if(leg.verdicts.begin(), leg.verdicts.end(), row.holds);
    if (found == leg.verdicts.end()) continue;
    RootCause cause = row.tell(*found);
    if (cause.kind == "peer") cause.kind = "error";
    return cause;
  }
  return {-1, "", "killed",
          formatted("no rank left a word; the launcher ended with {}", srun_code)};
}

}  // namespace trireme
