// What one run of the load generator is asked to do. Parsed once from the command line; every part reads it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace loadgen {

enum class Mode { kCreate, kDelete, kPublish, kEndToEnd, kDrain };
enum class Ack { kStream, kUnary, kNone };

// One stretch of an open-loop run: `rate` messages a second for `seconds`.
struct Phase {
  double seconds = 0;
  double rate = 0;
};

struct Options {
  Mode mode = Mode::kPublish;
  std::string target;                              // HOST:PORT
  std::string subscribe_target;                    // e2e: where to consume, if not there
  std::string topic = "projects/bench/topics/load";
  std::string subscription = "projects/bench/subscriptions/load";
  int topics = 1;          // more than one: names get the suffix -0, -1, ...
  int subscriptions = 1;   // per topic; names get a further suffix -0, -1, ...
  int streams = 1;         // StreamingPull streams per subscription
  int connections = 1;     // connections that publish
  int stream_connections = 0;                      // connections that consume; 0: one per 64 streams
  int in_flight = 16;      // closed loop: Publish requests outstanding
  int batch = 100;         // messages per Publish
  int size = 1024;         // bytes of data per message, at least 16
  double seconds = 5;      // closed loop: how long to publish; drain: give up after this
  uint64_t total = 0;      // stop after this many messages (0: by time); drain: messages expected
  std::vector<Phase> phases;                       // not empty: open loop
  uint64_t open_loop_max_in_flight = 20000;        // requests; beyond it the schedule slips, and latency shows it
  int64_t max_outstanding_messages = 0;            // StreamingPull flow control; 0: none
  int64_t max_outstanding_bytes = 0;
  int ack_deadline_seconds = 60;
  Ack ack = Ack::kStream;
  uint64_t ack_every = 1;  // acknowledge only messages whose sequence number divides by this
  double grace_seconds = 5;                        // e2e: wait this long after the last delivery for missing messages
  double call_timeout_seconds = 60;                // 0: no deadline on Publish
  uint32_t run = 1;        // tag in every message; messages of other runs are counted apart
  uint64_t first_sequence = 0;                     // of each topic's first message
};

// Reads `loadgen MODE HOST:PORT [--option value]...`; prints the usage and exits with 2 when it makes no sense.
Options Parse(int argc, char** argv);

// "name" alone, or "name-3" when there are several.
std::string Numbered(const std::string& name, int index, int count);
std::string TopicName(const Options& options, int topic);
std::string SubscriptionName(const Options& options, int topic, int subscription);

}  // namespace loadgen
