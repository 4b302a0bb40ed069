"""What each method does and what its authors report, a module a paper; engine.catalog collects."""
