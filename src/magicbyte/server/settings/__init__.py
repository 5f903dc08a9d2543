"""Settings of a broker and of topics: names, types, defaults, what a release offers."""
