// Just enough protobuf to write requests once and to walk responses without decoding them.
//
// A load generator that parsed every message into objects would measure itself. Requests are templates whose messages
// are stamped in place; responses are scanned field by field. Field numbers are those of google.pubsub.v1.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace loadgen {

inline void PutVarint(std::string& out, uint64_t value) {
  for (; value > 0x7f; value >>= 7) out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

inline void PutNumber(std::string& out, int field, uint64_t value) {
  PutVarint(out, uint64_t(field) << 3);
  PutVarint(out, value);
}

inline void PutBytes(std::string& out, int field, std::string_view value) {
  PutVarint(out, uint64_t(field) << 3 | 2);
  PutVarint(out, value.size());
  out.append(value);
}

// Walks the fields of one message. `Next` is false at the end and when the bytes make no sense (`broken`).
class Fields {
 public:
  explicit Fields(std::string_view message)
      : at_(reinterpret_cast<const uint8_t*>(message.data())), end_(at_ + message.size()) {}

  bool Next() {
    if (at_ >= end_) return false;
    uint64_t tag, length;
    if (!Varint(tag)) return Broken();
    number = int(tag >> 3);
    switch (tag & 7) {
      case 0:
        value = {};
        return Varint(integer) || Broken();
      case 1:
        return Take(8);
      case 2:
        return (Varint(length) && Take(length)) || Broken();
      case 5:
        return Take(4);
      default:
        return Broken();
    }
  }

  int number = 0;
  uint64_t integer = 0;
  std::string_view value;
  bool broken = false;

 private:
  bool Varint(uint64_t& out) {
    out = 0;
    for (int shift = 0; at_ < end_ && shift < 64; shift += 7) {
      uint8_t byte = *at_++;
      out |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Take(uint64_t length) {
    if (length > uint64_t(end_ - at_)) return Broken();
    value = {reinterpret_cast<const char*>(at_), size_t(length)};
    at_ += length;
    return true;
  }
  bool Broken() {
    broken = true;
    at_ = end_;
    return false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
};

// The first 16 bytes of every message's data: when it was due (CLOCK_MONOTONIC ns), which run, which message.
struct Stamp {
  uint64_t due_ns;
  uint32_t run;
  uint32_t sequence;
};
static_assert(sizeof(Stamp) == 16);

// The messages of a PublishRequest (its topic is sent before them), stamped anew before each use.
class PublishTemplate {
 public:
  PublishTemplate(int messages, int size) {
    // Filler that does not compress, the same in every message.
    std::string data(size_t(size), '\0');
    uint32_t state = 2463534242u;
    for (char& byte : data) {
      state ^= state << 13, state ^= state >> 17, state ^= state << 5;
      byte = char(state);
    }
    std::string message;
    PutBytes(message, 1, data);
    for (int i = 0; i < messages; i++) {
      PutBytes(bytes_, 2, message);
      stamps_.push_back(bytes_.size() - data.size());
    }
  }
  void Fill(uint64_t due_ns, uint32_t run, uint64_t first_sequence) {
    Stamp stamp{due_ns, run, uint32_t(first_sequence)};
    for (size_t at : stamps_) {
      std::memcpy(&bytes_[at], &stamp, sizeof stamp);
      stamp.sequence++;
    }
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::vector<size_t> stamps_;
};

}  // namespace loadgen
