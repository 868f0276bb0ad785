// Consumes over StreamingPull and acknowledges, over the stream or by unary Acknowledge.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "measure.h"
#include "options.h"
#include "rpc.h"

namespace loadgen {

// What the publishing side reports to a consumer that runs beside it.
struct Progress {
  std::atomic<uint64_t> start_ns{0};
  std::atomic<bool> consuming{false};  // set by the consumer once its streams are open
  std::atomic<bool> published{false};  // set by the publisher when `expected` is final
  std::atomic<uint64_t> expected{0};   // deliveries: messages acknowledged to the publisher x subscriptions
};

struct SubscribeResult {
  uint64_t first_ns = 0, last_ns = 0;  // first and last delivery
  uint64_t received = 0, distinct = 0, foreign = 0, acknowledged = 0;
  uint64_t responses = 0, ack_requests = 0, bytes = 0, stream_restarts = 0;
  std::vector<Histogram> latency;      // per phase; of messages, from when they were due
  Errors errors;
};

// Runs until everything expected has come (drain: `options.total` messages), or nothing new came for
// `options.grace_seconds` after publishing ended (drain: at all), or, in a drain, `options.seconds` are over.
SubscribeResult Subscribe(const Options& options, Progress& progress);

}  // namespace loadgen
