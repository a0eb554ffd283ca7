#include "serve/access.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "http/loopback.hpp"

namespace trireme::serve {
namespace {

int status(const AccessRules& rules, const http::HttpHead& head, bool needs_token = true) {
  const auto problem = find_access_problem(rules, head, needs_token);
  return problem ? problem->status() : 200;
}

TEST(Access, ALoopbackServerKnowsItsNames) {
  for (const char* host : {"localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:9",
                           "127.1.2.3:80", "[::1]", "[::1]:8000"}) {
    EXPECT_TRUE(http::is_loopback_host(host)) << host;
    EXPECT_EQ(status({}, {.host = host}), 200) << host;
  }
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8000",
        "10.0.0.1", "[::2]", "[::1", "128.0.0.1", "127.0.0.1@evil.example"}) {
    EXPECT_FALSE(http::is_loopback_host(host)) << host;
    EXPECT_EQ(status({}, {.host = host}), 403) << host;
    EXPECT_EQ(status({}, {.host = host}, false), 403) << host;
  }
  EXPECT_EQ(status({.token = "t", .is_loopback = false},
                   {.host = "node7:8000", .authorization = "Bearer t"}),
            200);
}

TEST(Access, OtherSitesAreNotLetIn) {
  const auto from = [](const char* origin, bool needs_token = true) {
    return status({}, {.host = "localhost:8000", .origin = origin}, needs_token);
  };
  EXPECT_EQ(from("http://localhost:8000"), 200);
  EXPECT_EQ(from("https://LOCALHOST:8000"), 200);
  EXPECT_EQ(from("http://localhost:8001"), 403);
  EXPECT_EQ(from("http://localhost"), 403);
  EXPECT_EQ(from("http://127.0.0.1:8000"), 403);
  EXPECT_EQ(from("http://evil.example"), 403);
  EXPECT_EQ(from("null"), 403);
  EXPECT_EQ(from("", false), 403);
  EXPECT_EQ(status({}, {.host = "localhost", .fetch_site = "cross-site"}), 403);
  EXPECT_EQ(status({}, {.host = "localhost", .fetch_site = "cross-site"}, false), 200);  // a link
  EXPECT_EQ(status({}, {.host = "localhost", .fetch_site = "same-origin"}), 200);
}

TEST(Access, WantsTheToken) {
  const AccessRules rules{.token = "secret"};
  const auto with = [&](const char* authorization) {
    return status(rules, {.host = "localhost", .authorization = authorization});
  };
  EXPECT_EQ(with("Bearer secret"), 200);
  EXPECT_EQ(with("bearer secret"), 200);
  EXPECT_EQ(with("Bearer secret "), 401);
  EXPECT_EQ(with("Bearer secre"), 401);
  EXPECT_EQ(with("Bearer "), 401);
  EXPECT_EQ(with("Basic secret"), 401);
  EXPECT_EQ(with("secret"), 401);
  EXPECT_EQ(status(rules, {.host = "localhost"}), 401);
  EXPECT_EQ(status(rules, {.host = "localhost"}, false), 200);
}

TEST(Access, OnlyTheOriginsOfTheListMaySendRequests) {
  const AccessRules rules{.token = "t", .cors_origins = {"https://a.example", "http://b:8"}};
  const auto from = [&](const char* origin) {
    return http::HttpHead{.host = "localhost",
                          .origin = origin,
                          .fetch_site = "cross-site",
                          .authorization = "Bearer t"};
  };
  EXPECT_EQ(status(rules, from("https://a.example")), 200);
  EXPECT_EQ(status(rules, from("http://b:8")), 200);
  for (const char* other : {"http://a.example", "https://a.example:1", "http://b", "null", "*"})
    EXPECT_EQ(status(rules, from(other)), 403) << other;
  EXPECT_EQ(status({.cors_origins = {"*"}}, from("null")), 200);
  EXPECT_EQ(status(rules, {.host = "localhost", .origin = "https://a.example"}), 401);
  EXPECT_EQ(status(rules, {.host = "evil.example", .origin = "https://a.example"}), 403);
}

TEST(Access, CorsHeadersNameOnlyAllowedOrigins) {
  const AccessRules rules{.cors_origins = {"https://a.example"}};
  const http::HttpHeaders vary{{"Vary", "Origin"}};
  const http::HttpHeaders allowed{{"Vary", "Origin"},
                                  {"Access-Control-Allow-Origin", "https://a.example"}};
  EXPECT_EQ(cors_headers({}, {.origin = "https://a.example"}), http::HttpHeaders());
  EXPECT_EQ(cors_headers(rules, {.origin = "https://a.example"}), allowed);
  EXPECT_EQ(cors_headers(rules, {.origin = "https://b.example"}), vary);
  EXPECT_EQ(cors_headers(rules, {}), vary);
  EXPECT_EQ(cors_headers({.cors_origins = {"*"}}, {.origin = "https://b.example"}),
            http::HttpHeaders({{"Access-Control-Allow-Origin", "*"}}));
}

TEST(Access, AnOriginHasASchemeAndAHostButNoPath) {
  EXPECT_NO_THROW(check_cors_origins({"*", "https://a.example", "http://[::1]:8"}));
  for (const char* text : {"", "a.example", "https://", "https://a.example/", "https://*.a.example",
                           "null", "https://a.example, https://b.example", "://a"})
    EXPECT_THROW(check_cors_origins({text}), Error) << text;
}

}  // namespace
}  // namespace trireme::serve
