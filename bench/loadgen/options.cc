#include "options.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

namespace loadgen {
namespace {

[[noreturn]] void Usage(const std::string& problem) {
  std::fprintf(stderr,
               "loadgen: %s\n"
               "usage: loadgen create|delete|publish|e2e|drain HOST:PORT [options]\n"
               "  --topic NAME --subscription NAME --topics N --subscriptions N --streams N\n"
               "  --connections N --stream-connections N --in-flight N --batch N --size BYTES\n"
               "  --seconds S --total MESSAGES --rate MSGS_PER_S --profile SECONDS:RATE,...\n"
               "  --open-loop-max-in-flight N --max-outstanding MESSAGES --max-outstanding-bytes BYTES\n"
               "  --ack stream|unary|none --ack-every N --ack-deadline S --grace S --timeout S\n"
               "  --run TAG --first-sequence N --subscribe-at HOST:PORT\n",
               problem.c_str());
  std::exit(2);
}

double Number(const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || value < 0) Usage("not a number: '" + text + "'");
  return value;
}

std::vector<Phase> Profile(const std::string& text) {
  std::vector<Phase> phases;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    size_t colon = part.find(':');
    if (colon == std::string::npos) Usage("a profile is SECONDS:RATE,..., not '" + text + "'");
    Phase phase{Number(part.substr(0, colon)), Number(part.substr(colon + 1))};
    if (phase.seconds <= 0 || phase.rate <= 0) Usage("seconds and rate of a phase must be above 0");
    phases.push_back(phase);
  }
  return phases;
}

Ack AckStyle(const std::string& text) {
  if (text == "stream") return Ack::kStream;
  if (text == "unary") return Ack::kUnary;
  if (text == "none") return Ack::kNone;
  Usage("--ack is stream, unary or none, not '" + text + "'");
}

}  // namespace

Options Parse(int argc, char** argv) {
  static const std::map<std::string, Mode> kModes = {{"create", Mode::kCreate},
                                                     {"delete", Mode::kDelete},
                                                     {"publish", Mode::kPublish},
                                                     {"e2e", Mode::kEndToEnd},
                                                     {"drain", Mode::kDrain}};
  if (argc < 3) Usage("mode and address are needed");
  auto mode = kModes.find(argv[1]);
  if (mode == kModes.end()) Usage(std::string("unknown mode '") + argv[1] + "'");
  Options o;
  o.mode = mode->second;
  o.target = argv[2];
  double rate = 0;
  std::map<std::string, std::function<void(const std::string&)>> set = {
      {"--subscribe-at", [&](auto& v) { o.subscribe_target = v; }},
      {"--topic", [&](auto& v) { o.topic = v; }},
      {"--subscription", [&](auto& v) { o.subscription = v; }},
      {"--topics", [&](auto& v) { o.topics = int(Number(v)); }},
      {"--subscriptions", [&](auto& v) { o.subscriptions = int(Number(v)); }},
      {"--streams", [&](auto& v) { o.streams = int(Number(v)); }},
      {"--connections", [&](auto& v) { o.connections = int(Number(v)); }},
      {"--stream-connections", [&](auto& v) { o.stream_connections = int(Number(v)); }},
      {"--in-flight", [&](auto& v) { o.in_flight = int(Number(v)); }},
      {"--batch", [&](auto& v) { o.batch = int(Number(v)); }},
      {"--size", [&](auto& v) { o.size = int(Number(v)); }},
      {"--seconds", [&](auto& v) { o.seconds = Number(v); }},
      {"--total", [&](auto& v) { o.total = uint64_t(Number(v)); }},
      {"--rate", [&](auto& v) { rate = Number(v); }},
      {"--profile", [&](auto& v) { o.phases = Profile(v); }},
      {"--open-loop-max-in-flight", [&](auto& v) { o.open_loop_max_in_flight = uint64_t(Number(v)); }},
      {"--max-outstanding", [&](auto& v) { o.max_outstanding_messages = int64_t(Number(v)); }},
      {"--max-outstanding-bytes", [&](auto& v) { o.max_outstanding_bytes = int64_t(Number(v)); }},
      {"--ack", [&](auto& v) { o.ack = AckStyle(v); }},
      {"--ack-every", [&](auto& v) { o.ack_every = uint64_t(Number(v)); }},
      {"--ack-deadline", [&](auto& v) { o.ack_deadline_seconds = int(Number(v)); }},
      {"--grace", [&](auto& v) { o.grace_seconds = Number(v); }},
      {"--timeout", [&](auto& v) { o.call_timeout_seconds = Number(v); }},
      {"--run", [&](auto& v) { o.run = uint32_t(Number(v)); }},
      {"--first-sequence", [&](auto& v) { o.first_sequence = uint64_t(Number(v)); }},
  };
  for (int i = 3; i < argc; i += 2) {
    auto option = set.find(argv[i]);
    if (option == set.end()) Usage(std::string("unknown option '") + argv[i] + "'");
    if (i + 1 == argc) Usage(std::string("no value for ") + argv[i]);
    option->second(argv[i + 1]);
  }
  if (o.size < 16) Usage("--size must be at least 16: time, run and sequence number travel in the data");
  if (o.batch < 1 || o.in_flight < 1 || o.topics < 1 || o.subscriptions < 1 || o.streams < 1 || o.connections < 1 ||
      o.ack_every < 1) {
    Usage("counts must be at least 1");
  }
  if (o.phases.empty() && rate > 0) o.phases.push_back({o.seconds, rate});
  return o;
}

std::string Numbered(const std::string& name, int index, int count) {
  return count == 1 ? name : name + "-" + std::to_string(index);
}

std::string TopicName(const Options& o, int topic) { return Numbered(o.topic, topic, o.topics); }

std::string SubscriptionName(const Options& o, int topic, int subscription) {
  return Numbered(Numbered(o.subscription, topic, o.topics), subscription, o.subscriptions);
}

}  // namespace loadgen
