"""The log: messages on M disks, durable before they are confirmed, in this process or in storage processes over TCP."""
