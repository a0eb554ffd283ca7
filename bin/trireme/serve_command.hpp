#pragma once
#include "config/command_line.hpp"
#include "serve/serve.hpp"

namespace trireme {

/// `trireme serve`: answers requests in the form of OpenAI's API, and shows the web page, until a
/// signal ends it; its URL is the one line on standard output.
class ServeCommand {
 public:
  explicit ServeCommand(CommandLine& line);
  ServeCommand(const ServeCommand&) = delete;
  ServeCommand& operator=(const ServeCommand&) = delete;

 private:
  int run() const;

  ServeOptions options_;
};

}  // namespace trireme
