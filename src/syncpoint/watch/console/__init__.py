"""The console: a program in the browser that shows what the server does and lets it be operated, at `/console`."""
