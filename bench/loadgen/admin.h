// Creates and deletes the topics and subscriptions of a run.
#pragma once
#include "measure.h"
#include "options.h"
#include "rpc.h"

namespace loadgen {

struct AdminResult {
  uint64_t start_ns = 0, end_ns = 0, topics = 0, subscriptions = 0;
  Histogram latency;
  Errors errors;
};

// Topics first, then the subscriptions, `options.in_flight` calls at a time. What exists already (or, deleting, does
// not exist) is as good as done.
AdminResult Administer(const Options& options);

}  // namespace loadgen
