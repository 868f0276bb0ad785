"""The command line tool `syncpoint`, in the shape of `gcloud pubsub`: one module per group of commands."""
