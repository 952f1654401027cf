"""Where the figures of a job go, beside its record stream: metrics.jsonl, TensorBoard, W&B."""
