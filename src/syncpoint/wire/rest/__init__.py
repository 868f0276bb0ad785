"""REST: the methods of gRPC as HTTP/1.1 with JSON, on the same port and by one table."""
