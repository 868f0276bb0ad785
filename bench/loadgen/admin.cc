#include "admin.h"

namespace loadgen {
namespace {

struct Call {
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  uint64_t sent_ns = 0;
};

// Makes `count` calls of one method, request i written by `request(i)`; returns how many went well.
template <typename Request>
uint64_t Many(const Options& o, grpc::GenericStub& stub, const char* method, int count, AdminResult& result,
              Request request) {
  grpc::CompletionQueue queue;
  uint64_t done = 0;
  int next = 0, under_way = 0;
  while (next < count || under_way > 0) {
    for (; next < count && under_way < o.in_flight; next++, under_way++) {
      auto* call = new Call;
      grpc::Slice slice(request(next));
      SetTimeout(call->context, 60);
      call->sent_ns = NowNs();
      call->reader = stub.PrepareUnaryCall(&call->context, method, grpc::ByteBuffer(&slice, 1), &queue);
      call->reader->StartCall();
      call->reader->Finish(&call->reply, &call->status, call);
    }
    void* tag;
    bool ok;
    if (!queue.Next(&tag, &ok)) break;
    std::unique_ptr<Call> call(static_cast<Call*>(tag));
    under_way--;
    auto code = call->status.error_code();
    bool as_good = code == grpc::ALREADY_EXISTS || (code == grpc::NOT_FOUND && o.mode == Mode::kDelete);
    if (call->status.ok() || as_good) {
      done++;
      result.latency.Add(NowNs() - call->sent_ns);
    } else {
      result.errors.Add(call->status);
    }
  }
  return done;
}

}  // namespace

AdminResult Administer(const Options& o) {
  auto stubs = Connect(o, 1);
  AdminResult result;
  result.start_ns = NowNs();
  auto topic = [&](int i) {
    std::string request;
    PutBytes(request, 1, TopicName(o, i));
    return request;
  };
  auto subscription = [&](int i) {
    std::string request;
    PutBytes(request, 1, SubscriptionName(o, i % o.topics, i / o.topics));
    if (o.mode == Mode::kDelete) return request;
    PutBytes(request, 2, TopicName(o, i % o.topics));
    PutNumber(request, 5, uint64_t(o.ack_deadline_seconds));
    return request;
  };
  bool create = o.mode == Mode::kCreate;
  const std::string publisher = "/google.pubsub.v1.Publisher/", subscriber = "/google.pubsub.v1.Subscriber/";
  const std::string topic_method = publisher + (create ? "CreateTopic" : "DeleteTopic");
  const std::string subscription_method = subscriber + (create ? "CreateSubscription" : "DeleteSubscription");
  result.topics = Many(o, *stubs[0], topic_method.c_str(), o.topics, result, topic);
  result.subscriptions =
      Many(o, *stubs[0], subscription_method.c_str(), o.topics * o.subscriptions, result, subscription);
  result.end_ns = NowNs();
  return result;
}

}  // namespace loadgen
