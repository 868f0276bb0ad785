"""Access control: callers are identified, and each call is allowed only if the caller's grants cover it."""
