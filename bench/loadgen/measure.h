// Clocks, latency histograms, and the set of messages seen.
#pragma once
#include <sys/resource.h>
#include <time.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace loadgen {

inline uint64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

inline double OwnCpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) / 1e9;
}

// Latencies in ns with a relative error below 0.8 % and constant memory (64 buckets per power of two).
class Histogram {
 public:
  void Add(uint64_t ns, uint64_t times = 1) {
    buckets_[Index(ns)] += times;
    count_ += times;
    if (ns > max_) max_ = ns;
  }
  void Add(const Histogram& other) {
    for (size_t i = 0; i < buckets_.size(); i++) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    if (other.max_ > max_) max_ = other.max_;
  }
  uint64_t count() const { return count_; }
  double max_ms() const { return double(max_) / 1e6; }
  // The latency in ms that the share `p` of all values does not exceed; 0 without values.
  double PercentileMs(double p) const {
    if (count_ == 0) return 0;
    uint64_t rank = uint64_t(p * double(count_ - 1)) + 1, passed = 0;
    for (size_t i = 0; i < buckets_.size(); i++) {
      passed += buckets_[i];
      if (passed >= rank) return Middle(i) / 1e6;
    }
    return max_ms();
  }

 private:
  static constexpr int kBits = 6;  // 2^6 buckets per power of two
  static size_t Index(uint64_t ns) {
    if (ns < (1u << (kBits + 1))) return size_t(ns);
    int shift = 63 - __builtin_clzll(ns) - kBits;
    return (size_t(shift) << kBits) + size_t(ns >> shift);
  }
  static double Middle(size_t index) {
    if (index < (1u << (kBits + 1))) return double(index);
    int shift = int(index >> kBits) - 1;
    uint64_t low = ((index & ((1u << kBits) - 1)) | (1u << kBits)) << shift;
    return double(low) + double(1ull << shift) / 2;
  }
  std::array<uint64_t, (64 - kBits + 1) << kBits> buckets_{};
  uint64_t count_ = 0, max_ = 0;
};

// Which sequence numbers arrived; one bit each.
class Seen {
 public:
  // False when `sequence` was there already.
  bool Add(uint64_t sequence) {
    size_t word = size_t(sequence >> 6);
    if (word >= words_.size()) words_.resize(word + word / 2 + 64);
    uint64_t bit = 1ull << (sequence & 63);
    if (words_[word] & bit) return false;
    words_[word] |= bit;
    distinct_++;
    return true;
  }
  uint64_t distinct() const { return distinct_; }

 private:
  std::vector<uint64_t> words_;
  uint64_t distinct_ = 0;
};

// A JSON object written field by field, in the order given.
class Json {
 public:
  Json& Add(const char* name, double value);
  Json& Add(const char* name, uint64_t value);
  Json& Add(const char* name, const std::string& text);
  Json& AddRaw(const char* name, const std::string& json);
  Json& Add(const std::string& prefix, const Histogram& latency);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

}  // namespace loadgen
