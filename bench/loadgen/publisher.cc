#include "publisher.h"

#include <sys/prctl.h>

#include <mutex>
#include <thread>

namespace loadgen {
namespace {

// One request under way, with its own template, so that a request's bytes are written once and never copied.
struct Call {
  explicit Call(const Options& o) : messages(o.batch, o.size) {}

  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  uint64_t due_ns = 0;
  PublishTemplate messages;
};

class Publisher {
 public:
  explicit Publisher(const Options& options)
      : o_(options), stubs_(Connect(options, options.connections)), sequences_(size_t(options.topics), o_.first_sequence) {
    // The topic travels in a small slice of its own before the messages: protobuf fields may come in any order.
    for (int i = 0; i < o_.topics; i++) {
      std::string field;
      PutBytes(field, 1, TopicName(o_, i));
      topics_.emplace_back(field);
    }
    result_.latency.resize(std::max<size_t>(1, o_.phases.size()));
  }

  PublishResult Run(std::atomic<uint64_t>& start_ns) {
    start_ns = result_.start_ns = NowNs();
    if (o_.phases.empty()) {
      ClosedLoop();
    } else {
      OpenLoop();
    }
    return std::move(result_);
  }

 private:
  void ClosedLoop() {
    uint64_t end = result_.start_ns + uint64_t(o_.seconds * 1e9), under_way = 0;
    auto more = [&] {
      if (result_.errors.count() > 1000) return false;
      return o_.total ? sent_ * uint64_t(o_.batch) < o_.total : NowNs() < end;
    };
    for (; under_way < uint64_t(o_.in_flight) && more(); under_way++) Send(new Call(o_), NowNs());
    void* tag;
    bool ok;
    while (under_way > 0 && queue_.Next(&tag, &ok)) {
      Call* call = Received(static_cast<Call*>(tag));
      if (more()) {
        Send(call, NowNs());
      } else {
        delete call;
        under_way--;
      }
    }
  }

  // One thread keeps the schedule with the kernel's timer (gRPC's own timers are too coarse), this one takes replies.
  void OpenLoop() {
    std::atomic<uint64_t> under_way{1};  // 1: the schedule itself
    std::thread schedule([&] {
      prctl(PR_SET_TIMERSLACK, 1);
      double due = double(result_.start_ns);
      for (const Phase& phase : o_.phases) {
        double gap = 1e9 * o_.batch / phase.rate, end = due + phase.seconds * 1e9;
        for (; due < end; due += gap) {
          SleepUntil(uint64_t(due));
          while (under_way > o_.open_loop_max_in_flight) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          uint64_t behind = NowNs() - uint64_t(due);
          if (behind > result_.behind_max_ns) result_.behind_max_ns = behind;
          under_way++;
          Send(Idle(), uint64_t(due));
        }
      }
      under_way--;
    });
    void* tag;
    bool ok;
    while (under_way > 0) {
      auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(20);
      if (queue_.AsyncNext(&tag, &ok, soon) != grpc::CompletionQueue::GOT_EVENT) continue;
      Call* call = Received(static_cast<Call*>(tag));
      {
        std::lock_guard<std::mutex> lock(idle_mutex_);
        idle_.push_back(call);
      }
      under_way--;
    }
    schedule.join();
  }

  static void SleepUntil(uint64_t ns) {
    timespec until{time_t(ns / 1000000000), long(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }

  Call* Idle() {
    std::lock_guard<std::mutex> lock(idle_mutex_);
    if (idle_.empty()) return new Call(o_);
    Call* call = idle_.back();
    idle_.pop_back();
    return call;
  }

  void Send(Call* call, uint64_t due_ns) {
    size_t topic = size_t(sent_ % uint64_t(o_.topics));
    call->due_ns = due_ns;
    call->messages.Fill(due_ns, o_.run, sequences_[topic]);
    sequences_[topic] += uint64_t(o_.batch);
    const std::string& bytes = call->messages.bytes();
    grpc::Slice slices[] = {topics_[topic], grpc::Slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE)};
    grpc::ByteBuffer request(slices, 2);
    call->context = std::make_unique<grpc::ClientContext>();
    SetTimeout(*call->context, o_.call_timeout_seconds);
    call->reply.Clear();
    call->reader = stubs_[sent_ % stubs_.size()]->PrepareUnaryCall(call->context.get(), kPublish, request, &queue_);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
    sent_++;
  }

  // Counts a reply; gives back a call that may be used again.
  Call* Received(Call* call) {
    uint64_t now = NowNs();
    result_.end_ns = now;
    if (!call->status.ok()) {
      result_.errors.Add(call->status);
      // After a failure gRPC may still hold the request's bytes: leave this call behind rather than write over them.
      call->reader.reset();
      return new Call(o_);
    }
    uint64_t ids = 0;
    Fields reply(Flat(call->reply, slices_, spare_));
    while (reply.Next()) ids += reply.number == 1;
    if (reply.broken || ids != uint64_t(o_.batch)) result_.errors.Add("a reply does not hold one id per message");
    result_.requests++;
    result_.messages += uint64_t(o_.batch);
    result_.latency[PhaseAt(o_, result_.start_ns, call->due_ns)].Add(now - call->due_ns);
    return call;
  }

  const Options& o_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<grpc::Slice> topics_, slices_;
  std::vector<uint64_t> sequences_;
  std::string spare_;
  uint64_t sent_ = 0;
  std::mutex idle_mutex_;
  std::vector<Call*> idle_;
  PublishResult result_;
};

}  // namespace

PublishResult Publish(const Options& options, std::atomic<uint64_t>& start_ns) {
  return Publisher(options).Run(start_ns);
}

size_t PhaseAt(const Options& options, uint64_t start_ns, uint64_t due_ns) {
  size_t phase = 0;
  double end = double(start_ns);
  for (; phase + 1 < options.phases.size(); phase++) {
    end += options.phases[phase].seconds * 1e9;
    if (double(due_ns) < end) break;
  }
  return phase;
}

}  // namespace loadgen
