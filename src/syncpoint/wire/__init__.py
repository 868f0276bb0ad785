"""The wire: bytes of requests and answers. gRPC over HTTP/2, the protobuf messages and methods, and REST."""
