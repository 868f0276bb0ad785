"""The service as seen from a program: blocking calls with bounded retries, for the command line and for scripts."""
