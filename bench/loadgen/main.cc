// loadgen: puts load on a server that speaks google.pubsub.v1, and measures what a client sees.
//
//   loadgen publish HOST:PORT ...   Publish only
//   loadgen e2e     HOST:PORT ...   Publish, and consume with StreamingPull beside it
//   loadgen drain   HOST:PORT ...   consume a backlog
//   loadgen create|delete HOST:PORT ...   the topics and subscriptions of such a run
//
// Prints one JSON object. Rates are messages a second between the first and the last event; latencies are of requests
// (publish) and of messages (delivery), both from when they were due.
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "admin.h"
#include "publisher.h"
#include "subscriber.h"

using namespace loadgen;

namespace {

double Rate(uint64_t count, uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? double(count) * 1e9 / double(to_ns - from_ns) : 0;
}

// The latencies over everything under `prefix`, and phase by phase as a list when there are several.
void Latencies(Json& json, const std::string& prefix, const std::vector<Histogram>& phases) {
  Histogram all;
  std::string list;
  for (const Histogram& phase : phases) {
    all.Add(phase);
    list += (list.empty() ? "" : ", ") + Json().Add(prefix, phase).Add("count", phase.count()).str();
  }
  json.Add(prefix, all);
  if (phases.size() > 1) json.AddRaw((prefix + "_phases").c_str(), "[" + list + "]");
}

void Report(Json& json, const PublishResult& r) {
  json.Add("published", r.messages).Add("publish_requests", r.requests);
  json.Add("publish_seconds", double(r.end_ns - r.start_ns) / 1e9);
  json.Add("publish_msgs_per_s", Rate(r.messages, r.start_ns, r.end_ns));
  json.Add("generator_behind_max_ms", double(r.behind_max_ns) / 1e6);
  Latencies(json, "publish", r.latency);
}

void Report(Json& json, const SubscribeResult& r, uint64_t start_ns) {
  json.Add("received", r.received).Add("distinct", r.distinct).Add("foreign", r.foreign);
  json.Add("duplicates", r.received - r.foreign - r.distinct).Add("acknowledged", r.acknowledged);
  json.Add("responses", r.responses).Add("ack_requests", r.ack_requests).Add("stream_restarts", r.stream_restarts);
  json.Add("received_bytes", r.bytes);
  json.Add("first_delivery_seconds", r.first_ns ? double(r.first_ns - start_ns) / 1e9 : 0.0);
  json.Add("delivery_seconds", r.last_ns > start_ns ? double(r.last_ns - start_ns) / 1e9 : 0.0);
  json.Add("delivery_msgs_per_s", Rate(r.distinct, start_ns, r.last_ns));
}

}  // namespace

int main(int argc, char** argv) {
  Options options = Parse(argc, argv);
  // Connecting and thread start are not the load: CPU is counted from here on, for what follows.
  double cpu = OwnCpuSeconds();
  Progress progress;
  Json json;
  Errors errors;
  uint64_t messages = 0;
  json.Add("mode", std::string(argv[1])).Add("batch", uint64_t(options.batch)).Add("size", uint64_t(options.size));
  if (options.mode == Mode::kCreate || options.mode == Mode::kDelete) {
    AdminResult r = Administer(options);
    json.Add("topics", r.topics).Add("subscriptions", r.subscriptions);
    json.Add("seconds", double(r.end_ns - r.start_ns) / 1e9).Add("call", r.latency);
    errors = r.errors;
    messages = r.topics + r.subscriptions;
  } else if (options.mode == Mode::kPublish) {
    PublishResult r = Publish(options, progress.start_ns);
    Report(json, r);
    errors = r.errors;
    messages = r.messages;
  } else if (options.mode == Mode::kDrain) {
    uint64_t start_ns = NowNs();
    SubscribeResult r = Subscribe(options, progress);
    Report(json, r, start_ns);
    errors = r.errors;
    messages = r.received;
  } else {
    SubscribeResult r;
    Options there = options;
    if (!options.subscribe_target.empty()) there.target = options.subscribe_target;
    std::thread consumer([&] { r = Subscribe(there, progress); });
    while (!progress.consuming) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // let the server see the streams
    PublishResult p = Publish(options, progress.start_ns);
    progress.expected = p.messages * uint64_t(options.subscriptions);
    progress.published = true;
    consumer.join();
    Report(json, p);
    Report(json, r, p.start_ns);
    Latencies(json, "delivery", r.latency);
    json.Add("missing", progress.expected > r.distinct ? uint64_t(progress.expected) - r.distinct : 0);
    errors = p.errors;
    errors.Add(r.errors);
    messages = std::max(p.messages, r.received);
  }
  cpu = OwnCpuSeconds() - cpu;
  json.Add("errors", errors.count()).Add("error", errors.Worst());
  json.Add("generator_cpu_seconds", cpu);
  json.Add("generator_cpu_us_per_msg", messages ? cpu * 1e6 / double(messages) : 0.0);
  std::printf("%s\n", json.str().c_str());
  std::fflush(stdout);
  _exit(0);  // channels and threads of gRPC need no orderly end here
}
