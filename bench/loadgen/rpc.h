// Channels and raw calls: what publisher, subscriber and admin share of gRPC.
#pragma once
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "options.h"
#include "wire.h"

namespace loadgen {

inline constexpr char kPublish[] = "/google.pubsub.v1.Publisher/Publish";
inline constexpr char kStreamingPull[] = "/google.pubsub.v1.Subscriber/StreamingPull";
inline constexpr char kAcknowledge[] = "/google.pubsub.v1.Subscriber/Acknowledge";

// One stub per connection. gRPC shares connections between equal channels; an argument that differs keeps them apart.
inline std::vector<std::unique_ptr<grpc::GenericStub>> Connect(const Options& options, int connections) {
  static int next = 0;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (int i = 0; i < connections; i++) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    arguments.SetMaxSendMessageSize(64 << 20);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt("loadgen.connection", next++);
    auto channel = grpc::CreateCustomChannel(options.target, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
      std::fprintf(stderr, "loadgen: no connection to %s\n", options.target.c_str());
      std::exit(3);
    }
    stubs.push_back(std::make_unique<grpc::GenericStub>(channel));
  }
  return stubs;
}

inline void SetTimeout(grpc::ClientContext& context, double seconds) {
  if (seconds <= 0) return;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(int64_t(seconds * 1e6)));
}

// The bytes of a received message in one piece: a view into the buffer where gRPC kept it whole, else a copy in `spare`.
inline std::string_view Flat(grpc::ByteBuffer& buffer, std::vector<grpc::Slice>& slices, std::string& spare) {
  slices.clear();
  buffer.Dump(&slices);
  if (slices.size() == 1) return {reinterpret_cast<const char*>(slices[0].begin()), slices[0].size()};
  spare.clear();
  for (auto& slice : slices) spare.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return spare;
}

// Errors by "CODE: message", each with how often it came.
class Errors {
 public:
  void Add(const grpc::Status& status) {
    count_++;
    kinds_[std::to_string(status.error_code()) + ": " + status.error_message().substr(0, 120)]++;
  }
  void Add(const std::string& what, uint64_t times = 1) {
    count_ += times;
    kinds_[what] += times;
  }
  void Add(const Errors& other) {
    count_ += other.count_;
    for (auto& [what, times] : other.kinds_) kinds_[what] += times;
  }
  uint64_t count() const { return count_; }
  // The most frequent one, for the report; "" when there was none.
  std::string Worst() const {
    std::string worst;
    uint64_t most = 0;
    for (auto& [what, times] : kinds_) {
      if (times > most) most = times, worst = what + " (" + std::to_string(times) + "x)";
    }
    return worst;
  }

 private:
  uint64_t count_ = 0;
  std::map<std::string, uint64_t> kinds_;
};

}  // namespace loadgen
