#include "subscriber.h"

#include <deque>

#include "publisher.h"

namespace loadgen {
namespace {

constexpr size_t kAckRequestBytes = 400 << 10;  // the API allows 512 KiB of ack ids in a request
constexpr uint64_t kStreamRestartsMax = 100;

enum Event : uintptr_t { kStarted, kRead, kWritten, kHalfClosed, kFinished, kAcked, kEvents = 8 };

struct Stream {
  int subscription = 0;  // index over all topics
  grpc::GenericStub* stub = nullptr;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  grpc::ByteBuffer in;
  grpc::Status status;
  std::deque<std::string> acks;  // requests waiting to be written
  bool open = false, writing = false, half_closed = false;
};

// A unary Acknowledge under way.
struct AckCall {
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
};

class Subscriber {
 public:
  Subscriber(const Options& options, Progress& progress) : o_(options), progress_(progress) {
    int subscriptions = o_.topics * o_.subscriptions, streams = subscriptions * o_.streams;
    stubs_ = Connect(o_, o_.stream_connections ? o_.stream_connections : (streams + 63) / 64);
    seen_.resize(size_t(subscriptions));
    streams_.resize(size_t(streams));
    for (int i = 0; i < streams; i++) {
      streams_[size_t(i)].subscription = i % subscriptions;
      streams_[size_t(i)].stub = stubs_[size_t(i) % stubs_.size()].get();
    }
    result_.latency.resize(std::max<size_t>(1, o_.phases.size()));
  }

  SubscribeResult Run() {
    start_ns_ = new_ns_ = NowNs();
    for (Stream& stream : streams_) Open(stream);
    while (!Complete()) Turn();
    progress_.consuming = true;  // also when no stream could be opened: nobody waits for ever
    closing_ = true;
    for (Stream& stream : streams_) Write(stream);
    uint64_t give_up = NowNs() + 3000000000ull;
    while ((open_ > 0 || acks_under_way_ > 0) && NowNs() < give_up) Turn();
    for (Stream& stream : streams_) stream.context->TryCancel();
    give_up = NowNs() + 1000000000ull;
    while (open_ > 0 && NowNs() < give_up) Turn();
    for (Seen& seen : seen_) result_.distinct += seen.distinct();
    return std::move(result_);
  }

 private:
  bool Complete() {
    uint64_t now = NowNs();
    uint64_t grace = uint64_t(o_.grace_seconds * 1e9);
    if (open_ == 0) return true;
    if (o_.mode == Mode::kDrain) {
      if (double(now - start_ns_) > o_.seconds * 1e9 || now - new_ns_ > grace) return true;
      return o_.total && new_messages_ >= o_.total;
    }
    if (!progress_.published) {
      published_ns_ = now;
      return false;
    }
    return new_messages_ >= progress_.expected || now - std::max(new_ns_, published_ns_) > grace;
  }

  // Takes one event, or none for 20 ms.
  void Turn() {
    void* tag;
    bool ok;
    auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(20);
    if (queue_.AsyncNext(&tag, &ok, soon) != grpc::CompletionQueue::GOT_EVENT) return;
    auto value = reinterpret_cast<uintptr_t>(tag);
    auto event = Event(value % kEvents);
    if (event == kAcked) {
      std::unique_ptr<AckCall> call(reinterpret_cast<AckCall*>(value - kAcked));
      acks_under_way_--;
      if (!call->status.ok()) result_.errors.Add(call->status);
      return;
    }
    Handle(*reinterpret_cast<Stream*>(value - event), event, ok);
  }

  void Handle(Stream& stream, Event event, bool ok) {
    switch (event) {
      case kStarted:
        if (!ok) return End(stream);
        stream.acks.push_front(FirstRequest(stream));
        Write(stream);
        stream.call->Read(&stream.in, Tag(stream, kRead));
        if (++started_ >= streams_.size()) progress_.consuming = true;
        return;
      case kRead:
        if (!ok) return End(stream);
        if (!closing_) Take(stream);  // what comes after the last expected message is not part of the run
        stream.in.Clear();
        stream.call->Read(&stream.in, Tag(stream, kRead));
        return;
      case kWritten:
        stream.writing = false;
        if (ok) Write(stream);
        return;
      case kHalfClosed:
        return;
      case kFinished:
        open_--;
        stream.open = false;
        if (closing_) return;
        if (!stream.status.ok()) result_.errors.Add(stream.status);
        if (++result_.stream_restarts <= kStreamRestartsMax) Open(stream);
        return;
      default:
        return;
    }
  }

  static void* Tag(Stream& stream, Event event) {
    static_assert(alignof(Stream) >= kEvents && alignof(AckCall) >= kEvents);
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(&stream) + event);
  }

  void Open(Stream& stream) {
    stream.context = std::make_unique<grpc::ClientContext>();
    stream.acks.clear();
    stream.writing = stream.half_closed = false;
    stream.open = true;
    stream.call = stream.stub->PrepareCall(stream.context.get(), kStreamingPull, &queue_);
    stream.call->StartCall(Tag(stream, kStarted));
    open_++;
  }

  void End(Stream& stream) { stream.call->Finish(&stream.status, Tag(stream, kFinished)); }

  std::string Subscription(const Stream& stream) const {
    return SubscriptionName(o_, stream.subscription % o_.topics, stream.subscription / o_.topics);
  }

  std::string FirstRequest(const Stream& stream) const {
    std::string request;
    PutBytes(request, 1, Subscription(stream));
    PutNumber(request, 5, uint64_t(o_.ack_deadline_seconds));
    PutBytes(request, 6, "loadgen-" + std::to_string(o_.run));
    if (o_.max_outstanding_messages) PutNumber(request, 7, uint64_t(o_.max_outstanding_messages));
    if (o_.max_outstanding_bytes) PutNumber(request, 8, uint64_t(o_.max_outstanding_bytes));
    return request;
  }

  void Write(Stream& stream) {
    if (!stream.open || stream.writing || stream.half_closed) return;
    if (!stream.acks.empty()) {
      grpc::Slice slice(stream.acks.front());
      stream.acks.pop_front();
      stream.writing = true;
      result_.ack_requests++;
      stream.call->Write(grpc::ByteBuffer(&slice, 1), Tag(stream, kWritten));
    } else if (closing_) {
      stream.half_closed = true;
      stream.call->WritesDone(Tag(stream, kHalfClosed));
    }
  }

  // The hot path: walks one StreamingPullResponse and queues its acknowledgements.
  void Take(Stream& stream) {
    uint64_t now = NowNs();
    std::string_view bytes = Flat(stream.in, slices_, spare_);
    Seen& seen = seen_[size_t(stream.subscription)];
    std::string* acks = stream.acks.empty() ? nullptr : &stream.acks.back();
    std::string unary;
    result_.responses++;
    result_.bytes += bytes.size();
    Fields response(bytes);
    while (response.Next()) {
      if (response.number != 1) continue;
      std::string_view ack_id;
      Stamp stamp{};
      Fields received(response.value);
      while (received.Next()) {
        if (received.number == 1) {
          ack_id = received.value;
        } else if (received.number == 2) {
          Fields message(received.value);
          if (message.Next() && message.number == 1 && message.value.size() >= sizeof stamp) {
            std::memcpy(&stamp, message.value.data(), sizeof stamp);
          }
        }
      }
      result_.received++;
      if (stamp.run != o_.run) {
        result_.foreign++;
      } else {
        if (seen.Add(stamp.sequence)) new_messages_++;
        if (o_.mode == Mode::kEndToEnd) {
          size_t phase = o_.phases.size() < 2 ? 0 : PhaseAt(o_, progress_.start_ns, stamp.due_ns);
          result_.latency[phase].Add(now - stamp.due_ns);
        }
      }
      if (o_.ack == Ack::kNone || (o_.ack_every > 1 && stamp.sequence % o_.ack_every)) continue;
      result_.acknowledged++;
      if (o_.ack == Ack::kUnary) {
        PutBytes(unary, 2, ack_id);
        if (unary.size() > kAckRequestBytes) Acknowledge(stream, unary), unary.clear();
        continue;
      }
      if (!acks || acks->size() > kAckRequestBytes) acks = &stream.acks.emplace_back();
      PutBytes(*acks, 2, ack_id);
    }
    if (response.broken) result_.errors.Add("a response that is not protobuf");
    if (!result_.first_ns) result_.first_ns = now;
    result_.last_ns = new_ns_ = now;
    if (!unary.empty()) Acknowledge(stream, unary);
    Write(stream);
  }

  void Acknowledge(Stream& stream, const std::string& ids) {
    std::string request;
    PutBytes(request, 1, Subscription(stream));
    grpc::Slice slices[] = {grpc::Slice(request), grpc::Slice(ids)};
    auto* call = new AckCall;
    SetTimeout(call->context, o_.call_timeout_seconds);
    call->reader = stream.stub->PrepareUnaryCall(&call->context, kAcknowledge, grpc::ByteBuffer(slices, 2), &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status,
                         reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(call) + kAcked));
    acks_under_way_++;
    result_.ack_requests++;
  }

  const Options& o_;
  Progress& progress_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::deque<Stream> streams_;
  std::vector<Seen> seen_;
  std::vector<grpc::Slice> slices_;
  std::string spare_;
  uint64_t start_ns_ = 0, published_ns_ = 0, new_ns_ = 0, new_messages_ = 0, open_ = 0, started_ = 0;
  uint64_t acks_under_way_ = 0;
  bool closing_ = false;
  SubscribeResult result_;
};

}  // namespace

SubscribeResult Subscribe(const Options& options, Progress& progress) { return Subscriber(options, progress).Run(); }

}  // namespace loadgen
