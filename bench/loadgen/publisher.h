// Publishes, closed loop (so many requests in flight) or open loop (at a rate, whatever the server does).
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "measure.h"
#include "options.h"
#include "rpc.h"

namespace loadgen {

struct PublishResult {
  uint64_t start_ns = 0, end_ns = 0;   // first request due, last reply
  uint64_t messages = 0, requests = 0; // acknowledged by the server
  uint64_t behind_max_ns = 0;          // open loop: how late this generator itself sent a request, at worst
  std::vector<Histogram> latency;      // per phase; of requests, from when they were due
  Errors errors;
};

// Returns when all replies are in. Open-loop latency counts from the time a request was due by the schedule, not from
// when it was sent, so a stalled server cannot hide the requests that had to wait (coordinated omission).
// `start_ns` is published before the first request so that a consumer can distinguish phases.
PublishResult Publish(const Options& options, std::atomic<uint64_t>& start_ns);

// Which phase a message due at `due_ns` belongs to.
size_t PhaseAt(const Options& options, uint64_t start_ns, uint64_t due_ns);

}  // namespace loadgen
