"""Pipelines over whole archives: `run(load(Path("pipeline.toml")))`. docs/pipeline.md."""
