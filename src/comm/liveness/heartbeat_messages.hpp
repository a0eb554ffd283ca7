#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "comm/liveness/activity.hpp"
#include "comm/liveness/heartbeat.hpp"

/// Messages between the heartbeats of two ranks. All ranks of a job run the same binary, so a new
/// version may change the wire format. Each message lists its fields once, for both directions.
namespace trireme::comm::heartbeat {

/// First message of a connection, to rank 0 or to the leader of the node.
struct Hello {
  static constexpr char kLetter = 'H';
  std::string cookie;
  int rank = 0;
  std::string host;
  int pid = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(self.cookie);
    visit(self.rank);
    visit(self.host);
    visit(self.pid);
  }
};

/// Answer to Hello.
struct Welcome {
  static constexpr char kLetter = 'W';
  std::string cookie;
  std::string host;
  int pid = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(self.cookie);
    visit(self.host);
    visit(self.pid);
  }
};

/// A rank of the leader's node, from the leader to rank 0.
struct Member {
  static constexpr char kLetter = 'M';
  int rank = 0;
  std::string host;
  int pid = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(self.rank);
    visit(self.host);
    visit(self.pid);
  }
};

/// Calls `visit` with each field of an activity.
template <class Snapshot, class Visit>
void visit_activity(Snapshot& now, Visit&& visit) {
  visit(now.step);
  visit(now.operations);
  visit(now.group);
  visit(now.operation);
  visit(now.tag);
  visit(now.sequence);
  visit(now.phase);
  visit(now.complete);
  visit(now.waiting);
  visit(now.timed_out);
}

/// Current activity of the sending rank, to rank 0 or to the leader of its node.
struct Status {
  static constexpr char kLetter = 'S';
  ActivitySnapshot now;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit_activity(self.now, visit);
  }
};

/// Newest activity of another rank of the node, from the leader to rank 0.
struct Relayed {
  static constexpr char kLetter = 'R';
  int rank = 0;
  ActivitySnapshot now;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(self.rank);
    visit_activity(self.now, visit);
  }
};

/// Periodic message of rank 0 and of leaders that shows that the sender is alive.
struct Alive {
  static constexpr char kLetter = 'A';

  template <class Self, class Visit>
  static void fields(Self&, Visit&&) {}
};

/// Report of a lost rank: from rank 0 to all, and from a leader to rank 0 and to its node.
struct Lost {
  static constexpr char kLetter = 'L';
  PeerLoss loss;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(self.loss.rank);
    visit(self.loss.hostname);
    visit(self.loss.pid);
    visit(self.loss.exit_code);
    visit(self.loss.reason);
    visit(self.loss.hung);
  }
};

/// Announcement that the sending rank ends with an error.
struct Failure {
  static constexpr char kLetter = 'F';
  int exit_code = 0;
  std::string reason;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(self.exit_code);
    visit(self.reason);
  }
};

struct Goodbye {
  static constexpr char kLetter = 'G';

  template <class Self, class Visit>
  static void fields(Self&, Visit&&) {}
};

using HeartbeatMessage =
    std::variant<Hello, Welcome, Member, Status, Relayed, Alive, Lost, Failure, Goodbye>;

/// Returns the bytes of a message. Texts are cut at kMaxText bytes.
std::string encode(const HeartbeatMessage& message);

inline constexpr std::size_t kMaxText = 512;

/// The result of decoding the first message of a byte stream.
struct Decoded {
  std::optional<HeartbeatMessage> message = {};  // empty if the message is incomplete or garbage
  std::size_t used = 0;                          // bytes of the message
  bool garbage = false;                          // the bytes were not sent by a rank of this job
};

Decoded decode(std::string_view bytes);

}  // namespace trireme::comm::heartbeat
