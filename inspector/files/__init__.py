"""Files of a race: traces, tables, the run card and the replay page."""
