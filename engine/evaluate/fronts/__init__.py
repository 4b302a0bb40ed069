"""The fronts of all cache methods: settings searched, and tested on held-out problems."""
