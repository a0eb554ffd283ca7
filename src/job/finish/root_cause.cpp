#include "job/finish/root_cause.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>

#include "core/error.hpp"

namespace trireme {
namespace {

bool is_out_of_memory(const Verdict& verdict) {
  std::string text = verdict.message;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return verdict.exit_code == exit_code(ErrorKind::resource) &&
         text.find("out of memory") != std::string::npos;
}

RootCause own_cause(const Verdict& one) {
  const bool is_oom = one.kind == "error" && is_out_of_memory(one);
  return {one.rank, one.host, is_oom ? "oom" : one.kind, one.message};
}

RootCause lost_rank(const Verdict& one) {
  return {one.lost.rank, one.lost.host, one.lost.kind, one.message};
}

struct CauseRow {
  std::function<bool(const Verdict&)> holds;
  std::function<RootCause(const Verdict&)> cause;
};

bool is_comm(const Verdict& one) {
  return one.exit_code == exit_code(ErrorKind::comm);
}

/// The rules in order of priority: the first rule that matches a failure report gives the cause.
const std::array<CauseRow, 6>& rows() {
  static const std::array<CauseRow, 6> table{
      {{[](const Verdict& one) { return one.kind == "error" && !is_comm(one); }, own_cause},
       {[](const Verdict& one) { return one.kind == "hang"; }, own_cause},
       // A rank on the same node has seen the out-of-memory killer of the kernel.
       {[](const Verdict& one) { return one.lost.kind == "oom"; }, lost_rank},
       {[](const Verdict& one) { return one.lost.rank >= 0; }, lost_rank},
       {[](const Verdict& one) { return one.kind == "error"; }, own_cause},  // a timeout
       {[](const Verdict& one) { return one.exit_code != 0; }, own_cause}}};
  return table;
}

}  // namespace

RootCause root_cause_of(const Leg& leg, int srun_code) {
  for (const CauseRow& row : rows()) {
    const auto found = std::find_if(leg.verdicts.begin(), leg.verdicts.end(), row.holds);
    if (found == leg.verdicts.end()) continue;
    RootCause cause = row.cause(*found);
    if (cause.kind == "peer") cause.kind = "error";
    return cause;
  }
  return {-1, "", "killed",
          formatted("no rank reported a failure; the launcher exited with {}", srun_code)};
}

}  // namespace trireme
