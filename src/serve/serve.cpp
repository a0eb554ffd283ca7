#include "serve/serve.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/stop_signals.hpp"
#include "device/device.hpp"
#include "device/torch_errors.hpp"
#include "http/http_server.hpp"
#include "serve/service.hpp"

namespace trireme::serve {
namespace {

using namespace std::chrono_literals;

/// Runs the steps of the engine in a thread.
class EngineThread {
 public:
  EngineThread(generate::GenerationEngine& engine, std::int64_t threads)
      : thread_([this, &engine, threads](const std::stop_token& stop) {
          try {
            device::set_cpu_threads(threads,
                                    1);  // LibTorch sets the number of threads per calling thread
            device::with_torch_errors([&] { engine.run(stop); });
          } catch (...) {
            error_ = std::current_exception();
          }
          has_ended_ = true;
        }) {}

  [[nodiscard]] bool has_ended() const { return has_ended_; }

  /// Stops the thread and joins it. Rethrows the error that ended the engine.
  void end() {
    thread_.request_stop();
    thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
  std::atomic<bool> has_ended_ = false;
  // last member, so that the thread ends before the members that it writes are destroyed
  std::jthread thread_;
};

/// Upper limit of timeouts. Clocks count nanoseconds in 64 bits.
constexpr double kYear_s = 365 * 86400.0;

void check_options(const ServeOptions& options) {
  const auto refuse_below = [](const char* name, double value, double least) {
    if (!(value >= least))
      fail(ErrorKind::usage, "{} {}, must be {} or more", name, number_text(value),
           number_text(least));
  };
  const auto refuse_outside = [](const char* name, double value, double least, double most) {
    if (!(value >= least && value <= most))
      fail(ErrorKind::usage, "{} {}, must be in [{}, {}]", name, number_text(value),
           number_text(least), number_text(most));
  };
  if (options.port < 0 || options.port > 65535)
    fail(ErrorKind::usage, "--port {}, must be in [0, 65535] (0: any free port)", options.port);
  refuse_outside("--request-timeout-s", options.request_timeout_s, 1, kYear_s);
  refuse_outside("--drain-s", options.drain_s, 0, kYear_s);
  generate::check_batch("--max-batch", options.engine.max_batch);
  refuse_below("--max-queue", static_cast<double>(options.engine.max_queue), 1);
  refuse_below("--max-context", static_cast<double>(options.engine.max_context), 0);
  refuse_below("--kv-cache-mib", static_cast<double>(options.engine.kv_cache_mib), 0);
  generate::check_chat_template(options.model);
  check_cors_origins(options.cors_origins);
  if (!options.token.empty() && !options.token_file.empty())
    fail(ErrorKind::usage, "give either --token or --token-file");
}

std::string token_of(const ServeOptions& options) {
  constexpr std::size_t kMaxBytes = 4096;
  std::string token = options.token;
  if (!options.token_file.empty()) {
    token = read_text(options.token_file, kMaxBytes);
    token.erase(token.find_last_not_of("\r\n") + 1);
    if (token.empty()) fail(ErrorKind::data, "{} holds no token", options.token_file);
  }
  if (!std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; }))
    fail(ErrorKind::usage, "a token must be printable ASCII without blanks");
  return token;
}

/// Raises the limit of open files, because each connection needs a file descriptor.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

std::size_t max_connections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 4096;
  return std::clamp<std::size_t>(limit.rlim_cur / 2, 16, 4096);
}

std::string url_of(const std::string& host, std::uint16_t port) {
  std::string name = host;
  if (host == "0.0.0.0" || host == "::") {
    std::array<char, 256> machine{};
    if (::gethostname(machine.data(), machine.size() - 1) == 0) name = machine.data();
  } else if (host.find(':') != std::string::npos) {
    name = "[" + host + "]";
  }
  return formatted("http://{}:{}", name, port);
}

/// Returns the name of the run: "first" for runs/first and for
/// runs/first/checkpoints/step-000000100.
std::string name_of(const std::filesystem::path& place) {
  std::filesystem::path path = std::filesystem::absolute(place).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.parent_path().filename() == "checkpoints") path = path.parent_path().parent_path();
  return path.filename().string();
}

ModelProperties facts_of(const ServeOptions& options, generate::LoadedModel& model,
                         const generate::EngineConfig& config) {
  return {
      .name = options.model_name.empty() ? name_of(options.model.checkpoint) : options.model_name,
      .fingerprint = "fp_" + generate::hash_weights(model).substr(0, 16),
      .created = std::time(nullptr),
      .max_context = config.max_context,
      .vocab_size = model.transformer->config().vocab_size,
      .end_tokens = model.end_tokens,
      .chat = model.chat};
}

/// Waits until `is_done` returns true. Returns false if `seconds` have passed.
template <class IsDone>
bool wait_for(double seconds, IsDone&& is_done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!is_done()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

}  // namespace

void serve(const ServeOptions& options, const std::function<void(const std::string& url)>& ready) {
  check_options(options);
  const std::string token = token_of(options);
  raise_file_limit();
  watch_stop_signals();

  // The order makes the engine end last, after the connections and the service.
  std::optional<ServedModel> served;
  std::optional<Service> service;
  http::HttpServer server(
      {.host = options.host,
       .port = static_cast<std::uint16_t>(options.port),
       .max_connections = max_connections()},
      {.refuse = [&](const http::HttpHead& head) { return service->refuse(head); },
       .handle =
           [&](http::HttpRequest request, const std::shared_ptr<http::HttpReply>& reply) {
             service->handle(std::move(request), reply);
           },
       .error_body =
           [](int status, std::string_view message) {
             return ApiError(status, std::string(message)).body();
           },
       .common_headers =
           [&](const http::HttpHead& head) { return service->common_headers(head); }});
  if (!server.is_loopback() && token.empty()) {
    fail(ErrorKind::usage,
         "--host {} can be reached from other machines: give --token-file FILE (or --token T), or "
         "--host 127.0.0.1",
         options.host);
  }
  service.emplace(ServiceConfig{
      {.token = token, .is_loopback = server.is_loopback(), .cors_origins = options.cors_origins},
      options.request_timeout_s});
  server.start();  // /health answers "loading" from now on

  const auto model = generate::load_model(options.model);
  generate::GenerationEngine engine(*model->transformer, model->tokenizer, options.engine);
  served.emplace(facts_of(options, *model, engine.config()), model->tokenizer, engine);
  if (stop_signal() != 0) return;
  EngineThread steps(engine, options.model.threads);
  service->open(*served);
  ready(url_of(options.host, server.port()));

  while (stop_signal() == 0 && !steps.has_ended()) std::this_thread::sleep_for(20ms);
  service->drain();
  if (const int number = stop_signal(); number != 0) {
    log::info(formatted("{}: no new requests are accepted; {} running answers have {} s to finish",
                        signal_name(number), server.num_answering(), options.drain_s));
  }
  const auto is_idle = [&] { return server.num_answering() == 0 || steps.has_ended(); };
  if (!wait_for(options.drain_s, is_idle))
    log::warn(
        formatted("{} answers did not finish in time and are cancelled", server.num_answering()));
  std::exception_ptr error;
  try {
    steps.end();
  } catch (...) {
    error = std::current_exception();
  }
  // Let the cancelled answers send their last messages.
  wait_for(1, [&] { return server.num_answering() == 0; });
  server.stop();
  if (error) std::rethrow_exception(error);
}

}  // namespace trireme::serve
