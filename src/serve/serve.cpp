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
#include <stop_token>
#include <thread>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "core/process/stop_signals.hpp"
#include "device/torch_errors.hpp"
#include "generate/model_ranks.hpp"
#include "http/http_server.hpp"
#include "serve/service.hpp"

namespace trireme::serve {
namespace {

using namespace std::chrono_literals;

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
  generate::check_cuda_graph(options.engine.cuda_graph);
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

ModelProperties facts_of(const ServeOptions& options, const generate::ModelPart& part,
                         const generate::EngineConfig& config) {
  generate::LoadedModel& model = *part.model;
  const std::string hash =
      part.weights_hash.empty() ? generate::hash_weights(model) : part.weights_hash;
  return {
      .name = options.model_name.empty() ? name_of(options.model.checkpoint) : options.model_name,
      .fingerprint = "fp_" + hash.substr(0, 16),
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

/// The HTTP server with its service. The parts are members, so that they end in this order: the
/// connections, the service, the model.
class Front {
 public:
  Front(const ServeOptions& options, const std::string& token)
      : options_(options),
        server_(
            {.host = options.host,
             .port = static_cast<std::uint16_t>(options.port),
             .max_connections = max_connections()},
            {.refuse = [this](const http::HttpHead& head) { return service_->refuse(head); },
             .handle =
                 [this](http::HttpRequest request, const std::shared_ptr<http::HttpReply>& reply) {
                   service_->handle(std::move(request), reply);
                 },
             .error_body =
                 [](int status, std::string_view message) {
                   return ApiError(status, std::string(message)).body();
                 },
             .common_headers =
                 [this](const http::HttpHead& head) { return service_->common_headers(head); }}) {
    if (!server_.is_loopback() && token.empty()) {
      fail(ErrorKind::usage,
           "--host {} can be reached from other machines: give --token-file FILE (or --token T), "
           "or --host 127.0.0.1",
           options.host);
    }
    service_.emplace(ServiceConfig{{.token = token,
                                    .is_loopback = server_.is_loopback(),
                                    .cors_origins = options.cors_origins},
                                   options.request_timeout_s});
    server_.start();  // /health answers "loading" from now on
  }

  /// Answers requests until a stop signal, or until the engine ends. The calling thread runs the
  /// steps of the engine, because only this thread may communicate with other ranks.
  void run(const generate::ModelPart& part, generate::GenerationEngine& engine,
           const std::function<void(const std::string& url)>& ready);

 private:
  /// Waits for a stop signal, lets running answers finish, and ends the engine.
  void watch(std::stop_source& engine_stop, const std::atomic<bool>& has_ended);

  const ServeOptions& options_;
  std::optional<ServedModel> served_;
  std::optional<Service> service_;
  http::HttpServer server_;
};

void Front::watch(std::stop_source& engine_stop, const std::atomic<bool>& has_ended) {
  while (stop_signal() == 0 && !has_ended) std::this_thread::sleep_for(20ms);
  service_->drain();
  if (const int number = stop_signal(); number != 0) {
    log::info(formatted("{}: no new requests are accepted; {} running answers have {} s to finish",
                        signal_name(number), server_.num_answering(), options_.drain_s));
  }
  const auto is_idle = [&] { return server_.num_answering() == 0 || has_ended; };
  if (!wait_for(options_.drain_s, is_idle))
    log::warn(
        formatted("{} answers did not finish in time and are cancelled", server_.num_answering()));
  engine_stop.request_stop();
}

void Front::run(const generate::ModelPart& part, generate::GenerationEngine& engine,
                const std::function<void(const std::string& url)>& ready) {
  served_.emplace(facts_of(options_, part, engine.config()), part.model->tokenizer, engine);
  if (stop_signal() != 0) return;
  service_->open(*served_);
  std::stop_source engine_stop;
  std::atomic<bool> has_ended = false;
  std::exception_ptr error;
  {
    const std::jthread watcher([&] { watch(engine_stop, has_ended); });
    try {
      ready(url_of(options_.host, server_.port()));
      device::with_torch_errors([&] { engine.run(engine_stop.get_token()); });
    } catch (...) {
      error = std::current_exception();
    }
    has_ended = true;
  }
  // Let the cancelled answers send their last messages.
  wait_for(1, [&] { return server_.num_answering() == 0; });
  server_.stop();
  if (error) std::rethrow_exception(error);
}

}  // namespace

int serve(const ServeOptions& options, const generate::ModelRank& place,
          const std::function<void(const std::string& url)>& ready) {
  comm::Communicator& world = place.world;
  std::optional<Front> front;
  comm::all_or_none(world, [&] {
    generate::check_layout(options.layout, options.model, world.size());
    check_options(options);
    watch_stop_signals();
    if (world.rank() != 0) return;
    const std::string token = token_of(options);
    raise_file_limit();
    front.emplace(options, token);
  });
  const generate::ModelPart part = generate::load_on_ranks(options.model, options.layout, place);
  const auto& model = part.model;
  if (world.rank() != 0) return generate::follow(*model->transformer, world, part.pipeline);
  generate::ModelRanks ranks(world, part.pipeline, part.stage_layers);
  return ranks.lead([&] {
    generate::GenerationEngine engine(*model->transformer, model->tokenizer, options.engine,
                                      world.size() > 1 ? &ranks : nullptr);
    front->run(part, engine, ready);
    front.reset();
    return kExitDone;
  });
}

}  // namespace trireme::serve
