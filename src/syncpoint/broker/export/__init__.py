"""Cloud Storage subscriptions: messages become files in buckets, which the operator maps to places."""
