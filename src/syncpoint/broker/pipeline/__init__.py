"""For data pipelines: topics read as logs by ranges of offsets, written by epochs exactly once. See DESIGN.md."""
