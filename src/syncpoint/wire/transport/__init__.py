"""gRPC over HTTP/2 on asyncio: a lean server, a lean client, and a twin of both without sockets. See DESIGN.md."""
