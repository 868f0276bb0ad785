#include "measure.h"

#include <cstdio>

namespace loadgen {

Json& Json::AddRaw(const char* name, const std::string& json) {
  if (!body_.empty()) body_ += ", ";
  body_ += "\"" + std::string(name) + "\": " + json;
  return *this;
}

Json& Json::Add(const char* name, double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return AddRaw(name, text);
}

Json& Json::Add(const char* name, uint64_t value) { return AddRaw(name, std::to_string(value)); }

Json& Json::Add(const char* name, const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += (static_cast<unsigned char>(c) < 0x20) ? ' ' : c;
  }
  return AddRaw(name, quoted + "\"");
}

Json& Json::Add(const std::string& prefix, const Histogram& latency) {
  Add((prefix + "_p50_ms").c_str(), latency.PercentileMs(0.5));
  Add((prefix + "_p99_ms").c_str(), latency.PercentileMs(0.99));
  Add((prefix + "_p999_ms").c_str(), latency.PercentileMs(0.999));
  return Add((prefix + "_max_ms").c_str(), latency.max_ms());
}

}  // namespace loadgen
