"""Disks of other processes, served over TCP (`disk_server`) and used like local ones (`remote_files`)."""
