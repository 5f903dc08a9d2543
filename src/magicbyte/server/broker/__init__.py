"""The broker: request handlers, one file per family of APIs; configuration, topics, and the tasks that it owns."""
